"""What the environment's own interpreter runs for the part `import`; text, since it is not the agent's interpreter."""

from __future__ import annotations

__all__ = ["PROGRAM"]

# Runs on any Python from 3.8 on, with SIGNAL, UNHEARD and MODULES set. Its answers are JSON lines on fd 3, since
# imports print to stdout, and stand beside faulthandler's stacks there.
PROGRAM = r"""
import faulthandler, importlib, json, os, sys, time, traceback


def mark(fd):
    try:
        return os.fstat(fd)[1:3]
    except OSError:
        return None


def spare():
    try:
        return os.dup2(3, 700, False)
    except OSError:
        return os.dup(3)


MARK, SPARE = mark(3), spare()


def say(**answer):
    data = (json.dumps(answer) + "\n").encode()
    fd = next((fd for fd in (3, SPARE) if mark(fd) == MARK), None)
    if fd is None:
        os._exit(UNHEARD)
    while data:
        data = data[os.write(fd, data):]


def is_absent(error, name):
    absent = getattr(error, "name", None)
    return isinstance(error, ModuleNotFoundError) and absent and (name + ".").startswith(absent + ".")


def frames(error):
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        for frame in traceback.extract_tb(error.__traceback__):
            yield frame.filename.replace(os.sep, "/"), frame.name
        error = error.__cause__ or error.__context__


def place(error):
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith("<") and frame.filename != importlib.__file__:
            return "%s:%s" % (frame.filename, frame.lineno)
    return ""


def words(error):
    try:
        return str(error).strip()[-2000:]
    except Exception:
        return "(its text can't be made)"


def told(error):
    try:
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
        return [line[:400] for line in lines[-30:]]
    except Exception:
        return []


def look(alternatives):
    start = time.monotonic()
    first = None
    for name in alternatives:
        try:
            module = importlib.import_module(name)
        except BaseException as error:
            if is_absent(error, name):
                first = first or error
                continue
            first = error
            break
        origin = getattr(module, "__file__", None) or "(no file)"
        return dict(name=name, origin=origin, seconds=time.monotonic() - start)
    gpu = any(name == "_lazy_init" and file.endswith("torch/cuda/__init__.py") for file, name in frames(first))
    return dict(
        error="%s: %s" % (type(first).__name__, words(first)),
        lines=told(first), where=place(first), wants_gpu=gpu,
    )


faulthandler.enable(3)
faulthandler.register(SIGNAL, 3, True, False)
for alternatives in MODULES:
    answer = look(alternatives)
    say(**answer)
    if "error" in answer:
        break
os._exit(0)
"""
