/* A stand-in for NVIDIA's libcuda.so.1, driven by a text file: $DFLASH_CUDA_STATE, read once at the first call. As
 * the real one it sees the GPUs that CUDA_VISIBLE_DEVICES names (by UUID or index, in the file's order).
 *
 *   version 13000             what cuDriverGetVersion says
 *   error CALL NUMBER         any call by its full name: `error cuInit 999`
 *   hang CALL                 the call waits in state D, as behind a hung driver
 *   crash CALL                the call ends in a segmentation fault
 *   log FILE                  each call appends its name to the file
 *   gpu UUID NAME...          a GPU; what follows concerns it alone:
 *     mode NUMBER             its compute mode
 *     mig UUID                what cuDeviceGetUuid_v2 says in place of its own
 *     error, hang, crash      as above, for calls with this GPU; those without any when it is the only visible one
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { GPUS = 16, FAULTS = 64, TEXT = 96, NO_DEVICE = 100, INVALID_DEVICE = 101 };
typedef struct { char what[8], call[TEXT]; int number; } Fault;
typedef struct { Fault list[FAULTS]; int count; } Faults;
typedef struct { char uuid[TEXT], name[TEXT], mig[TEXT]; int mode; Faults faults; } Gpu;

static struct { int version, count, is_read; char log[256]; Faults faults; Gpu gpu[GPUS]; } state;
static int visible[GPUS], visible_count;

static void read_state(void) {
    if (state.is_read) return;
    state.is_read = 1, state.version = 13000;
    const char *path = getenv("DFLASH_CUDA_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    Gpu *gpu = NULL;
    for (char line[512]; file && fgets(line, sizeof line, file);) {
        char key[TEXT] = "", first[256] = "", second[TEXT] = "";
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%95s %255s %95s", key, first, second) < 2) continue;
        if (!strcmp(key, "gpu") && state.count < GPUS) {
            gpu = &state.gpu[state.count++];
            snprintf(gpu->uuid, TEXT, "%.95s", first);
            const char *name = strstr(line, first) + strlen(first);
            snprintf(gpu->name, TEXT, "%.95s", *name ? name + 1 : "NVIDIA RTX A6000");
        } else if (!strcmp(key, "version")) state.version = atoi(first);
        else if (!strcmp(key, "log")) snprintf(state.log, sizeof state.log, "%s", first);
        else if (!strcmp(key, "mode") && gpu) gpu->mode = atoi(first);
        else if (!strcmp(key, "mig") && gpu) snprintf(gpu->mig, TEXT, "%.95s", first);
        else {
            Faults *faults = gpu ? &gpu->faults : &state.faults;
            if (faults->count == FAULTS) continue;
            Fault *fault = &faults->list[faults->count++];
            snprintf(fault->what, sizeof fault->what, "%.7s", key);
            snprintf(fault->call, TEXT, "%.95s", first);
            fault->number = atoi(second);
        }
    }
    if (file) fclose(file);
    const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; i < state.count; i++) {
        char index[16];
        snprintf(index, sizeof index, "%d", i);
        if (!chosen || !strcmp(chosen, index) || !strcmp(chosen, state.gpu[i].uuid)) visible[visible_count++] = i;
    }
}

static int meet(const Faults *faults, const char *call) {
    for (int i = 0; i < faults->count; i++) {
        const Fault *fault = &faults->list[i];
        if (strcmp(fault->call, call)) continue;
        if (!strcmp(fault->what, "error")) return fault->number;
        if (!strcmp(fault->what, "crash")) raise(SIGSEGV);
        /* A parent in vfork waits uninterruptibly until its child ends. */
        if (!strcmp(fault->what, "hang") && !vfork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) pause();
        }
    }
    return 0;
}

static int enter(const char *call, int device) {
    read_state();
    FILE *log = *state.log ? fopen(state.log, "a") : NULL;
    if (log) { fprintf(log, "%s\n", call); fclose(log); }
    int number = meet(&state.faults, call);
    if (number) return number;
    if (device >= visible_count) return INVALID_DEVICE;
    if (device < 0 && visible_count != 1) return 0;
    return meet(&state.gpu[visible[device < 0 ? 0 : device]].faults, call);
}

static int put_uuid(unsigned char *bytes, const char *text) {
    if (!strncmp(text, "GPU-", 4) || !strncmp(text, "MIG-", 4)) text += 4;
    for (int i = 0; i < 16 && *text; i++, text += 2) {
        if (*text == '-') text++;
        unsigned value = 0;
        sscanf(text, "%2x", &value);
        bytes[i] = (unsigned char)value;
    }
    return 0;
}

int cuDriverGetVersion(int *version) { int e = enter("cuDriverGetVersion", -1); *version = state.version; return e; }
int cuInit(unsigned flags) { (void)flags; int e = enter("cuInit", -1); return e ? e : visible_count ? 0 : NO_DEVICE; }
int cuDeviceGetCount(int *count) { int e = enter("cuDeviceGetCount", -1); *count = visible_count; return e; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return enter("cuDeviceGet", ordinal); }
int cuDeviceGetName(char *name, int length, int device) {
    int e = enter("cuDeviceGetName", device);
    if (!e) snprintf(name, (size_t)length, "%s", state.gpu[visible[device]].name);
    return e;
}
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    int e = enter("cuDeviceGetUuid", device);
    return e ? e : put_uuid(uuid, state.gpu[visible[device]].uuid);
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    int e = enter("cuDeviceGetUuid_v2", device);
    Gpu *gpu = &state.gpu[visible[device < 0 || device >= visible_count ? 0 : device]];
    return e ? e : put_uuid(uuid, *gpu->mig ? gpu->mig : gpu->uuid);
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int e = enter("cuDeviceGetAttribute", device);
    if (!e) *value = attribute == 20 ? state.gpu[visible[device]].mode : 0;
    return e;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &state; return enter("cuDevicePrimaryCtxRetain", device); }
int cuDevicePrimaryCtxRelease_v2(int device) { return enter("cuDevicePrimaryCtxRelease_v2", device); }
int cuGetErrorName(int number, const char **name) {
    static char text[32];
    snprintf(text, sizeof text, "CUDA_ERROR_NUMBER_%d", number);
    *name = text;
    return 0;
}
