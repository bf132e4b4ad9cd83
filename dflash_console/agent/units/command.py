"""What a unit's command line starts: which Python, in which venv, on which port. Text and the first lines of
scripts are all that is read; nothing is run, and what can't be told for sure is a reason, not a guess."""

from __future__ import annotations

import os
import re
import shlex

from ..redact import redact_text
from ..regular import read_regular
from ..section import missing, shortened

__all__ = ["find_interpreter", "find_port", "is_python", "parse_environment"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    Told = Union[str, "dict[str, str]"]

DEFAULT_PORT = 30000
"""sglang's own (srt/server_args.py)."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SCRIPT_LIMIT = 64 << 10
SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "fish"])
WRAPPERS = frozenset(["nice", "ionice", "taskset", "numactl", "chrt", "timeout", "stdbuf", "setsid", "nohup"])
LAUNCHERS = frozenset(
    [
        "conda",
        "mamba",
        "micromamba",
        "uv",
        "poetry",
        "pipenv",
        "pdm",
        "hatch",
        "docker",
        "podman",
        "apptainer",
    ]
)
"""Programs that start another one in an environment of their own choice."""

_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?")
_COMMAND_OPTION = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")
_VALUE_OPTIONS = ("-o", "-O", "+o", "+O", "--rcfile", "--init-file")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_ACTIVATE = re.compile(r"(?:^|[;&|({\s])(?:source|\.)\s+[\"']?(/[^\s\"'$;&|]+)/bin/activate\b")
_ABSOLUTE = re.compile(r"(?<![\w/.$}~+-])(/[^\s\"'$;&|()]+/bin/(?:python[0-9.]*|sglang))(?![\w./-])")
_UNSURE = re.compile(
    r"[$~`][^\s;&|]*/(?:python[0-9.]*|sglang|activate)\b"
    r"|\b(?:" + "|".join(sorted(LAUNCHERS)) + r")\s+(?:\S+\s+)?(?:activate|run|exec)\b"
)
_LONG_SHEBANG = re.compile(r"'''exec' [\"']?(/[^\"'\n]+?)[\"']? \"\$0\"")


def parse_environment(text: str) -> dict[str, str]:
    """The Environment property of a unit as variables; empty when its quoting can't be read."""
    try:
        words = shlex.split(text)
    except ValueError:
        return {}
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


# ---- interpreter


def is_python(program: str) -> bool:
    """Whether an executable's name is a Python interpreter's."""
    return _PYTHON.fullmatch(os.path.basename(program)) is not None


def find_interpreter(program: str, command: str, environment: dict[str, str]) -> Told:
    """The Python that a command starts, as a path; a Missing with the reason when there is none or it is
    hidden.

    `command` is systemd's argv text, whose quotes are lost, so a shell's text is only taken when it names
    exactly one interpreter. Scripts are followed by their shebang.
    """
    words = command.split()[1:]
    path = environment.get("PATH", SYSTEM_PATH)
    for _ in range(8):
        name = os.path.basename(program)
        if is_python(program):
            found = _resolve(program, path)
            return found if "/" in found else missing("not_found", f"{program} is not on the unit's PATH")
        if name == "env":
            words, path = _skip_env(words, path)
        elif name in WRAPPERS:
            words = _skip_options(words)
        elif name in LAUNCHERS:
            return missing("not_found", f"started through {name}")
        elif name in SHELLS:
            return _ask_shell(command, words, path)
        else:
            program = _resolve(program, path)
            head = _read_head(program)
            if isinstance(head, dict):
                return head
            if not head.startswith("#!"):
                return missing("unsupported", f"not a Python program: {shortened(program, 200)}")
            words = [*head[2:].partition("\n")[0].split(), program, *words]
            command = " ".join(words)
        if not words:
            break
        program, *words = words
    return missing("not_found", f"no program in the command: {shortened(command, 160)}")


def _skip_env(words: list[str], path: str) -> tuple[list[str], str]:
    """What env(1) runs, and the PATH it runs it with."""
    rest = list(words)
    while rest:
        word = rest[0]
        if word in ("-u", "-C", "--unset", "--chdir"):
            del rest[:2]
        elif word.startswith("-"):
            del rest[0]
        elif _ASSIGNMENT.match(word):
            path = word[5:] if word.startswith("PATH=") and "$" not in word else path
            del rest[0]
        else:
            break
    return rest, path


def _skip_options(words: list[str]) -> list[str]:
    """What nice, numactl, timeout and their like run: the first word that is no option, number or CPU
    list."""
    for index, word in enumerate(words):
        if not word.startswith("-") and not word[:1].isdigit() and word != "all":
            return words[index:]
    return []


def _ask_shell(command: str, words: list[str], path: str) -> Told:
    """What a shell's text (after `-c`, or of a script file) starts, if it names exactly one interpreter."""
    text = ""
    for index, word in enumerate(words):
        rest = len(words) - index - 1
        if _COMMAND_OPTION.fullmatch(word):
            text = command.split(None, len(command.split()) - rest)[-1] if rest else ""
            break
        if word.startswith(("-", "+")) or (index and words[index - 1] in _VALUE_OPTIONS):
            continue
        head = _read_head(word, is_whole=True)
        if isinstance(head, dict):
            return head
        long_shebang = _LONG_SHEBANG.match(head.partition("\n")[2])
        if long_shebang:
            return long_shebang[1]
        text = "\n".join(line for line in head.split("\n") if not line.lstrip().startswith("#"))
        break
    named = {_follow(found, path) for found in _ABSOLUTE.findall(text)}
    named |= {found + "/bin/python" for found in _ACTIVATE.findall(text)}
    named.discard("")
    if len({os.path.dirname(found) for found in named}) == 1 and not _UNSURE.search(text):
        return min(named, key=len)
    return missing(
        "not_found", "started through a shell: " + shortened(redact_text(" ".join(command.split())), 200)
    )


def _follow(program: str, path: str) -> str:
    """The interpreter behind an absolute path in a shell's text; empty when a script there hides it."""
    if is_python(program):
        return program
    found = find_interpreter(program, program, {"PATH": path})
    return found if isinstance(found, str) else ""


def _resolve(program: str, path: str) -> str:
    if "/" in program:
        return program
    for folder in path.split(":"):
        candidate = os.path.join(folder, program)
        if folder.startswith("/") and os.access(candidate, os.X_OK):
            return candidate
    return program


def _read_head(path: str, *, is_whole: bool = False) -> Told:
    """The beginning of a script as text; a Missing when it can't be read, or when it is longer and `is_whole` is
    asked for."""
    shown = shortened(path, 200)
    try:
        data = read_regular(path, SCRIPT_LIMIT + 1)
        if is_whole and len(data) > SCRIPT_LIMIT:
            return missing(
                "not_found", f"started through a shell script of more than {SCRIPT_LIMIT} bytes: {shown}"
            )
        return data.decode("utf-8", "replace")
    except PermissionError:
        return missing("permission", f"may not read {shown}")
    except FileNotFoundError:
        return missing("not_found", f"{shown} is not there")
    except (OSError, ValueError) as error:
        return missing("error", f"{shown}: {getattr(error, 'strerror', error)}")


# ---- port


def find_port(words: list[str], environment: dict[str, str]) -> int | dict[str, str]:
    """The TCP port that a command line asks for (`--port N`, `--port=N`, `-p N`; the last one counts, as in
    argparse), or sglang's default when it is a server of sglang's."""
    text = ""
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        following = words[index + 1] if index + 1 < len(words) else ""
        if flag == "--port":
            text = value if equals else following
        elif word == "-p" and following.isdigit():
            text = following
    if not text:
        if _is_sglang(words):
            return DEFAULT_PORT
        return missing("not_found", "the command names no port")
    if text.startswith("$"):
        variable = text.strip("${}\"'")
        text = environment.get(variable, "")
        if not text:
            return missing("not_found", f"the port comes from the variable {shortened(variable, 80)}")
    digits = text.strip("\"'")
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65536:
        return int(digits)
    return missing("error", f"not a port: {shortened(text, 80)}")


def _is_sglang(words: list[str]) -> bool:
    for index, word in enumerate(words):
        if word == "sglang.launch_server" or word.endswith("sglang/launch_server.py"):
            return True
        if os.path.basename(word) == "sglang" and words[index + 1 : index + 2] == ["serve"]:
            return True
    return False
