/* A stand-in for NVIDIA's libnvidia-ml.so.1, so that the real pynvml can be driven into any state on a machine
 * without a GPU. It answers from a text file that it reads again whenever the file changed, so a test edits the
 * file while a program runs. The file is $DFLASH_NVML_STATE, else /run/standin-nvml/state; without one, nvmlInit
 * says that the driver is not loaded. Write a new file beside it and rename it over the old one.
 *
 * One statement a line, words separated by blanks, `#` starts a comment line. Before the first `gpu` line:
 *
 *   driver 580.95.05          what nvmlSystemGetDriverVersion says
 *   library 580.95.05         what nvmlSystemGetNVMLVersion says
 *   cuda 13000                what nvmlSystemGetCudaDriverVersion_v2 says
 *   count 3                   what nvmlDeviceGetCount_v2 says; else the number of `gpu` lines
 *   error CALL NUMBER         any call, by its name without `nvml`: `error InitWithFlags 18`
 *   hang CALL [SECONDS]       the call waits in state D (as behind a hung driver) until the file changes
 *
 * `gpu` starts a GPU, whose index is its place. After it, with the defaults of an idle card:
 *
 *   name TEXT...              uuid TEXT               bus 00000000:01:00.0
 *   utilization PERCENT       temperature CELSIUS     pstate NUMBER           persistence 0|1
 *   memory_total BYTES        memory_used BYTES       memory_reserved BYTES (memory_used is without it)
 *   power MILLIWATTS          power_limit MILLIWATTS  power_limit_default MILLIWATTS
 *   reasons MASK              pcie WIDTH MAX GENERATION MAX
 *   ecc CORRECTED UNCORRECTED remap CORRECTED UNCORRECTED PENDING FAILURE     mig 0|1
 *   process PID BYTES [compute|graphics] [INSTANCE]     BYTES of -1: not available
 *   field ID TYPE VALUE       nvmlDeviceGetFieldValues: TYPE is double, uint, ulong, ulonglong, slonglong, int, ushort
 *   field ID error NUMBER     that field alone fails; a field that is not there answers 3 (not supported)
 *   error CALL NUMBER         this GPU's call by its name without `nvmlDevice`: `error GetTemperature 3`;
 *                             `error * 15` is every call but the handle's; that is `error GetHandleByIndex 999`
 *   hang CALL [SECONDS]       as above, for this GPU; `*` is the next call, whichever it is
 *
 * Compiled with -DOLD_DRIVER it lacks the functions that came with the drivers 510 to 535 and later.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9,
       ARGUMENT_VERSION_MISMATCH = 25 };
enum { GPUS = 80, PROCESSES = 320, FIELDS = 32, FAULTS = 64, TEXT = 96, SYSTEM = -1 };

typedef unsigned long long u64;
typedef struct { char call[TEXT]; int error; int hangs; double seconds; } Fault;
typedef struct { Fault list[FAULTS]; int count; } Faults;
typedef struct { unsigned pid; u64 memory; int graphics; unsigned instance; } Process;
typedef union { double d; unsigned ui; unsigned long ul; u64 ull; long long sll; int si; unsigned short us; } Value;
typedef struct { unsigned id; int type, error; Value value; } Field;
typedef struct {
    char name[TEXT], uuid[TEXT], bus[32];
    unsigned utilization, temperature, power, power_limit, power_limit_default, pstate, persistence, mig;
    u64 memory_total, memory_used, memory_reserved, reasons, ecc[2];
    unsigned pcie[4], remap[4];
    Process processes[PROCESSES];
    int process_count;
    Field fields[FIELDS];
    int field_count;
    Faults faults;
} Gpu;

static struct { char driver[TEXT], library[TEXT]; int cuda, count, gpus; Faults faults; Gpu gpu[GPUS]; } state;
static struct stat seen;
static int is_initialized;

static const char *state_path(void) {
    const char *path = getenv("DFLASH_NVML_STATE");
    return path ? path : "/run/standin-nvml/state";
}

static int changed(struct stat *now) {
    if (stat(state_path(), now)) memset(now, 0, sizeof *now);
    return now->st_ino != seen.st_ino || now->st_size != seen.st_size ||
           now->st_mtim.tv_sec != seen.st_mtim.tv_sec || now->st_mtim.tv_nsec != seen.st_mtim.tv_nsec;
}

static void add_field(Gpu *gpu, unsigned id, const char *type, const char *text) {
    static const char *types[] = {"double", "uint", "ulong", "ulonglong", "slonglong", "int", "ushort"};
    if (gpu->field_count == FIELDS) return;
    Field *field = &gpu->fields[gpu->field_count++];
    *field = (Field){.id = id};
    if (!strcmp(type, "error")) { field->error = atoi(text); return; }
    for (int i = 0; i < 7; i++) if (!strcmp(type, types[i])) field->type = i;
    switch (field->type) {
    case 0: field->value.d = atof(text); break;
    case 4: field->value.sll = atoll(text); break;
    case 5: field->value.si = atoi(text); break;
    case 6: field->value.us = (unsigned short)strtoull(text, NULL, 0); break;
    case 1: field->value.ui = (unsigned)strtoull(text, NULL, 0); break;
    default: field->value.ull = strtoull(text, NULL, 0);
    }
}

static void add_fault(Faults *faults, const char *call, int error, int hangs, double seconds) {
    if (faults->count == FAULTS) return;
    Fault *fault = &faults->list[faults->count++];
    *fault = (Fault){.error = error, .hangs = hangs, .seconds = seconds};
    snprintf(fault->call, TEXT, "%s", call);
}

static Gpu *add_gpu(void) {
    if (state.gpus == GPUS) return &state.gpu[GPUS - 1];
    int index = state.gpus++;
    Gpu *gpu = &state.gpu[index];
    memset(gpu, 0, sizeof *gpu);
    snprintf(gpu->name, TEXT, "NVIDIA RTX A6000");
    snprintf(gpu->uuid, TEXT, "GPU-00000000-0000-4000-8000-%012d", index);
    snprintf(gpu->bus, 32, "00000000:%02X:00.0", index + 1);
    gpu->temperature = 31, gpu->power = 16000, gpu->power_limit = gpu->power_limit_default = 300000;
    gpu->pstate = 8, gpu->persistence = 1, gpu->reasons = 1;
    gpu->memory_total = 49140ULL << 20, gpu->memory_reserved = 638ULL << 20;
    gpu->pcie[0] = gpu->pcie[1] = 16, gpu->pcie[2] = 1, gpu->pcie[3] = 4;
    add_field(gpu, 230, "uint", "0");
    return gpu;
}

static void read_line(char *line, Gpu **gpu) {
    char word[6][TEXT] = {""};
    int count = sscanf(line, "%95s %95s %95s %95s %95s %95s", word[0], word[1], word[2], word[3], word[4], word[5]);
    const char *key = word[0], *first = word[1];
    Faults *faults = *gpu ? &(*gpu)->faults : &state.faults;
    if (count < 1 || *key == '#') return;
    if (!strcmp(key, "error")) { add_fault(faults, first, atoi(word[2]), 0, 0); return; }
    if (!strcmp(key, "hang")) { add_fault(faults, first, 0, 1, count > 2 ? atof(word[2]) : 1e9); return; }
    if (!strcmp(key, "gpu")) { *gpu = add_gpu(); return; }
    if (!*gpu) {
        if (!strcmp(key, "driver")) snprintf(state.driver, TEXT, "%s", first);
        else if (!strcmp(key, "library")) snprintf(state.library, TEXT, "%s", first);
        else if (!strcmp(key, "cuda")) state.cuda = atoi(first);
        else if (!strcmp(key, "count")) state.count = atoi(first);
        return;
    }
    Gpu *g = *gpu;
    u64 number = strtoull(first, NULL, 0);
    struct { const char *key; unsigned *place; } small[] = {
        {"utilization", &g->utilization}, {"temperature", &g->temperature}, {"power", &g->power},
        {"power_limit", &g->power_limit}, {"power_limit_default", &g->power_limit_default}, {"pstate", &g->pstate},
        {"persistence", &g->persistence}, {"mig", &g->mig}};
    struct { const char *key; u64 *place; } large[] = {
        {"memory_total", &g->memory_total}, {"memory_used", &g->memory_used},
        {"memory_reserved", &g->memory_reserved}, {"reasons", &g->reasons}};
    for (unsigned i = 0; i < sizeof small / sizeof *small; i++) if (!strcmp(key, small[i].key)) *small[i].place = (unsigned)number;
    for (unsigned i = 0; i < sizeof large / sizeof *large; i++) if (!strcmp(key, large[i].key)) *large[i].place = number;
    if (!strcmp(key, "name")) {
        char *text = strstr(line, "name") + 4;
        snprintf(g->name, TEXT, "%s", text + strspn(text, " "));
        g->name[strcspn(g->name, "\n")] = 0;
    } else if (!strcmp(key, "uuid")) snprintf(g->uuid, TEXT, "%s", first);
    else if (!strcmp(key, "bus")) snprintf(g->bus, 32, "%.31s", first);
    else if (!strcmp(key, "ecc")) for (int i = 0; i < 2; i++) g->ecc[i] = strtoull(word[i + 1], NULL, 0);
    else if (!strcmp(key, "pcie")) for (int i = 0; i < 4; i++) g->pcie[i] = (unsigned)atoi(word[i + 1]);
    else if (!strcmp(key, "remap")) for (int i = 0; i < 4; i++) g->remap[i] = (unsigned)atoi(word[i + 1]);
    else if (!strcmp(key, "field")) {
        for (int i = 0; i < g->field_count; i++)
            if (g->fields[i].id == number) g->fields[i] = g->fields[--g->field_count];
        add_field(g, (unsigned)number, word[2], word[3]);
    } else if (!strcmp(key, "process") && g->process_count < PROCESSES)
        g->processes[g->process_count++] = (Process){(unsigned)number, (u64)strtoll(word[2], NULL, 0),
            !strcmp(word[3], "graphics"), count > 4 ? (unsigned)strtoul(word[4], NULL, 0) : 0xFFFFFFFFu};
}

static void refresh(void) {
    struct stat now;
    char line[1024];
    Gpu *gpu = NULL;
    if (!changed(&now)) return;
    seen = now;
    state.gpus = 0, state.count = -1, state.cuda = 13000, state.faults.count = 0;
    strcpy(state.driver, "580.95.05"), strcpy(state.library, "580.95.05");
    FILE *file = fopen(state_path(), "r");
    if (!file) { add_fault(&state.faults, "InitWithFlags", DRIVER_NOT_LOADED, 0, 0); return; }
    while (fgets(line, sizeof line, file)) read_line(line, &gpu);
    fclose(file);
}

/* A parent in vfork waits uninterruptibly until its child ends, as a caller of a hung driver does. */
static void hang(double seconds) {
    struct stat now;
    if (vfork()) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (double waited = 0; waited < seconds && !changed(&now); waited += 0.01) usleep(10000);
    _exit(0);
}

/* What a fault of the state file makes of a call: its error number, or OK. */
static int fault(const Faults *faults, const char *call, int takes_any) {
    for (int i = 0; i < faults->count; i++) {
        const Fault *f = &faults->list[i];
        if (strcmp(f->call, call) && !(takes_any && !strcmp(f->call, "*"))) continue;
        if (!f->hangs) return f->error;
        hang(f->seconds);
        struct stat now;
        if (changed(&now)) refresh();
    }
    return OK;
}

static int enter(int index, const char *call) {
    refresh();
    if (index == SYSTEM) return fault(&state.faults, call, 0);
    if (!is_initialized) return UNINITIALIZED;
    if (index < 0 || index >= GPUS) return INVALID_ARGUMENT;
    if (index >= state.gpus) return 15;
    return fault(&state.gpu[index].faults, call, strcmp(call, "GetHandleByIndex") != 0);
}

typedef void *Device;
#define INDEX(device) ((int)((intptr_t)(device) - 1))
#define GPU (state.gpu[INDEX(device)])
#define CALL(name) do { int error = enter(INDEX(device), name); if (error) return error; } while (0)
#define SYSTEM_CALL(name) do { int error = enter(SYSTEM, name); if (error) return error; } while (0)
#define NUMBER(name, type, member) \
    int nvmlDevice##name(Device device, type *out) { CALL(#name); *out = (type)GPU.member; return OK; }

static int copy(char *out, unsigned size, const char *text) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; SYSTEM_CALL("InitWithFlags"); is_initialized++; return OK; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { if (is_initialized) is_initialized--; return OK; }
const char *nvmlErrorString(int number) { (void)number; return "stand-in"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { SYSTEM_CALL("SystemGetDriverVersion"); return copy(out, size, state.driver); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { SYSTEM_CALL("SystemGetNVMLVersion"); return copy(out, size, state.library); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { SYSTEM_CALL("SystemGetCudaDriverVersion_v2"); *out = state.cuda; return OK; }

int nvmlDeviceGetCount_v2(unsigned *out) {
    SYSTEM_CALL("DeviceGetCount_v2");
    *out = (unsigned)(state.count >= 0 ? state.count : state.gpus);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out) {
    int error = enter((int)index, "GetHandleByIndex");
    *out = (Device)(intptr_t)(index + 1);
    return error;
}

int nvmlDeviceGetName(Device device, char *out, unsigned size) { CALL("GetName"); return copy(out, size, GPU.name); }
int nvmlDeviceGetUUID(Device device, char *out, unsigned size) { CALL("GetUUID"); return copy(out, size, GPU.uuid); }
int nvmlDeviceGetIndex(Device device, unsigned *out) { CALL("GetIndex"); *out = (unsigned)INDEX(device); return OK; }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } PciInfo;
int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *out) {
    CALL("GetPciInfo_v3");
    memset(out, 0, sizeof *out);
    sscanf(GPU.bus, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    out->id = 0x223010de;
    strcpy(out->bus_id, GPU.bus);
    return OK;
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Device device, Utilization *out) {
    CALL("GetUtilizationRates");
    if (GPU.mig) return NOT_SUPPORTED;
    *out = (Utilization){GPU.utilization, GPU.utilization / 2};
    return OK;
}

typedef struct { u64 total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Device device, Memory *out) {
    CALL("GetMemoryInfo");
    u64 used = GPU.memory_used + GPU.memory_reserved;
    *out = (Memory){GPU.memory_total, GPU.memory_total - used, used};
    return OK;
}

int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *out) {
    (void)sensor;
    CALL("GetTemperature");
    *out = GPU.temperature;
    return OK;
}

NUMBER(GetPowerUsage, unsigned, power)
NUMBER(GetPowerManagementLimit, unsigned, power_limit)
NUMBER(GetEnforcedPowerLimit, unsigned, power_limit)
NUMBER(GetPowerManagementDefaultLimit, unsigned, power_limit_default)
NUMBER(GetPerformanceState, unsigned, pstate)
NUMBER(GetPersistenceMode, unsigned, persistence)
NUMBER(GetCurrentClocksThrottleReasons, u64, reasons)
NUMBER(GetCurrPcieLinkWidth, unsigned, pcie[0])
NUMBER(GetMaxPcieLinkWidth, unsigned, pcie[1])
NUMBER(GetCurrPcieLinkGeneration, unsigned, pcie[2])
NUMBER(GetMaxPcieLinkGeneration, unsigned, pcie[3])

int nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *pending) { CALL("GetMigMode"); *now = *pending = GPU.mig; return OK; }

int nvmlDeviceGetTotalEccErrors(Device device, unsigned kind, unsigned counter, u64 *out) {
    (void)counter;
    CALL("GetTotalEccErrors");
    *out = GPU.ecc[kind & 1];
    return OK;
}

int nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    CALL("GetRemappedRows");
    *corrected = GPU.remap[0], *uncorrected = GPU.remap[1], *pending = GPU.remap[2], *failure = GPU.remap[3];
    return OK;
}

typedef struct { unsigned id, scope; int64_t timestamp, latency; unsigned type; int error; Value value; } FieldValue;
int nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values) {
    CALL("GetFieldValues");
    for (int i = 0; i < count; i++) {
        values[i].error = NOT_SUPPORTED;
        for (int j = 0; j < GPU.field_count; j++) {
            Field *field = &GPU.fields[j];
            if (field->id != values[i].id) continue;
            memset(&values[i].value, 0xA5, sizeof(Value)); /* bytes that the type leaves out are not zero on a card */
            static const size_t sizes[] = {8, 4, 8, 8, 8, 4, 2};
            memcpy(&values[i].value, &field->value, sizes[field->type]);
            values[i].type = (unsigned)field->type, values[i].error = field->error;
        }
    }
    return OK;
}

typedef struct { unsigned pid; u64 memory; unsigned instance, compute_instance; } ProcessInfo;
static int list_processes(Device device, int graphics, unsigned *count, ProcessInfo *out) {
    unsigned room = *count, found = 0;
    for (int i = 0; i < GPU.process_count; i++) {
        Process *p = &GPU.processes[i];
        if (p->graphics != graphics) continue;
        if (out && found < room) out[found] = (ProcessInfo){p->pid, p->memory, p->instance, 0xFFFFFFFFu};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

#define PROCESSES_OF(kind, version, graphics) \
    int nvmlDeviceGet##kind##RunningProcesses_##version(Device device, unsigned *count, ProcessInfo *out) { \
        CALL("Get" #kind "RunningProcesses_" #version); return list_processes(device, graphics, count, out); }
PROCESSES_OF(Compute, v2, 0)
PROCESSES_OF(Graphics, v2, 1)

#ifndef OLD_DRIVER
PROCESSES_OF(Compute, v3, 0)
PROCESSES_OF(Graphics, v3, 1)
NUMBER(GetCurrentClocksEventReasons, u64, reasons)

typedef struct { unsigned version; u64 total, reserved, free, used; } MemoryV2;
int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *out) {
    CALL("GetMemoryInfo_v2");
    if (out->version != (sizeof(MemoryV2) | 2 << 24)) return ARGUMENT_VERSION_MISMATCH;
    u64 free = GPU.memory_total - GPU.memory_reserved - GPU.memory_used;
    *out = (MemoryV2){out->version, GPU.memory_total, GPU.memory_reserved, free, GPU.memory_used};
    return OK;
}

typedef struct { unsigned version, sensor; int temperature; } Temperature;
int nvmlDeviceGetTemperatureV(Device device, Temperature *out) {
    CALL("GetTemperatureV");
    out->temperature = (int)GPU.temperature;
    return OK;
}
#endif
