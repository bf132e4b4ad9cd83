"""What a unit's command line does before its Python starts: env(1), nice(1) and their like, and simple shell text.

Nothing is run. What can't be told for sure is a reason, not a guess: a folder or a variable that was set in between
decides over what is imported.
"""

from __future__ import annotations

import os
import re
import shlex

from ..regular import read_regular
from ..section import shortened
from ..units.command import SHELLS, WRAPPERS, is_python
from .command_line import expanded

__all__ = ["Launch", "unwrap"]

SCRIPT_LIMIT = 64 << 10
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
LONG_SHEBANG = re.compile(r"#![^\n]*\n'''exec' [\"']?(/[^\"'\n]+?)[\"']? \"\$0\"")
ENDS = frozenset([";", "&&", "\n"])
HARMLESS = frozenset(["set", "ulimit", "umask", "trap", "echo", "true", ":", "printf", "wait", "exit"])
"""Builtins that change neither the folder nor a variable."""
OPAQUE = frozenset(
    [
        *(
            "eval",
            "pushd",
            "popd",
            "declare",
            "typeset",
            "readonly",
            "local",
            "alias",
            "shopt",
            "command",
            "builtin",
        ),
        *(
            "if",
            "then",
            "else",
            "elif",
            "fi",
            "for",
            "while",
            "until",
            "do",
            "done",
            "case",
            "esac",
            "function",
        ),
        *("{", "}", "!", "[[", "conda", "mamba", "micromamba", "module", "read", "unset", "env"),
    ]
)
"""Words of a shell that may change them in ways not followed here."""
NO_PROGRAM = (OPAQUE | HARMLESS | {"cd", "export", ".", "source"}) - {"env"}


class Launch:
    """A Python's command line, and the folder and variables that it starts with."""

    def __init__(self, words: list[str], environment: dict[str, str], folder: str) -> None:
        self.words = words
        self.environment = dict(environment)
        self.folder = folder
        self.problem = ""
        """Why that can't be told."""


def unwrap(program: str, command: str, environment: dict[str, str], folder: str) -> Launch:
    """Follow a unit's command, systemd's argv text, to its Python: `words` then begin with that."""
    launch = Launch(expanded([program, *command.split()[1:]], environment), environment, folder)
    for _ in range(8):
        if launch.problem or not launch.words:
            break
        name = os.path.basename(launch.words[0])
        if is_python(name):
            return launch
        if name == "env":
            _env(launch)
        elif name in WRAPPERS:
            launch.words = _behind_options(launch.words[1:])
        elif name in SHELLS:
            _shell(launch, command)
        else:
            _script(launch)
    launch.problem = launch.problem or f"can't tell what {shortened(command, 160)} starts"
    return launch


def _behind_options(words: list[str]) -> list[str]:
    """What nice, numactl, timeout and their like run: the first word that is no option, number or CPU list."""
    at = (
        n
        for n, word in enumerate(words)
        if not word.startswith("-") and not word[:1].isdigit() and word != "all"
    )
    return words[next(at, len(words)) :]


# ---- env(1)


def _env(launch: Launch) -> None:
    rest = launch.words[1:]
    while rest:
        word = rest[0]
        option, equals, value = word.partition("=")
        match = ASSIGNMENT.match(word)
        if match:
            _assign(launch, match[1], match[2])
        elif word in ("-i", "-", "--ignore-environment"):
            launch.environment.clear()
        elif word in ("-u", "--unset", "-C", "--chdir") and len(rest) > 1:
            del rest[0]
            _unset_or_change(launch, option, rest[0])
        elif option in ("--unset", "--chdir") and equals:
            _unset_or_change(launch, option, value)
        elif word[:2] in ("-u", "-C") and len(word) > 2:
            _unset_or_change(launch, word[:2], word[2:])
        elif word == "--":
            del rest[0]
            break
        elif word.startswith("-") and word not in ("-v", "--debug"):
            launch.problem = f"it starts through env {option}, whose effect can't be told"
            return
        elif not word.startswith("-"):
            break
        del rest[0]
    launch.words = rest


def _unset_or_change(launch: Launch, option: str, value: str) -> None:
    if option in ("-u", "--unset"):
        launch.environment.pop(value, None)
    else:
        launch.folder = os.path.join(launch.folder, value)


def _assign(launch: Launch, name: str, value: str) -> None:
    expanded = _expanded(value, launch.environment)
    if expanded is None:
        launch.problem = f"it sets {name} to what can't be told"
    else:
        launch.environment[name] = expanded


def _expanded(text: str, environment: dict[str, str]) -> str | None:
    """The text with its variables; None when there is more to it than those."""
    filled = VARIABLE.sub(lambda match: environment.get(match[1] or match[2], "").replace("$", "\0"), text)
    if filled.startswith("~/") or filled == "~":
        filled = environment.get("HOME", "$") + filled[1:]
    return None if "$" in filled or "`" in filled or filled.startswith("~") else filled.replace("\0", "$")


# ---- scripts


def _script(launch: Launch) -> None:
    """A script starts what its first line names."""
    path = launch.words[0]
    if "/" not in path:
        folders = launch.environment.get("PATH", "").split(":")
        path = next((f for f in (f"{folder}/{path}" for folder in folders) if os.access(f, os.X_OK)), path)
    path = os.path.join(launch.folder, path)
    text = _read(path)
    line = text.partition("\n")[0]
    long = LONG_SHEBANG.match(text)
    if long:
        launch.words = [long[1], path, *launch.words[1:]]
    elif line.startswith("#!"):
        launch.words = [*line[2:].split(), path, *launch.words[1:]]
    else:
        launch.problem = f"{shortened(path, 160)} can't be read, or is no script"


def _read(path: str) -> str:
    try:
        return os.fsdecode(read_regular(path, SCRIPT_LIMIT + 1)[: SCRIPT_LIMIT + 1])
    except (OSError, ValueError):
        return ""


# ---- shells


def _shell(launch: Launch, command: str) -> None:
    """A shell's text after `-c`, or of a script file, as far as it is a plain row of commands."""
    launch.problem = f"started through a shell, whose effect can't be told: {shortened(command, 120)}"
    text = ""
    words = launch.words[1:]
    while words and words[0].startswith(("-", "+")):
        option = words.pop(0)
        if option.startswith("--") or "o" in option or "O" in option or "i" in option or "l" in option:
            return  # a login shell reads profiles, and -o takes a value
        if "c" in option:
            text = " ".join(words)
            break
    else:
        text = _read(os.path.join(launch.folder, words[0])) if words else ""
        if LONG_SHEBANG.match(text):
            launch.words, launch.problem = words, ""
            return
        lines = text.replace("\\\n", " ").split("\n")
        text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    if not text.strip() or len(text) > SCRIPT_LIMIT or "`" in text or "$(" in text or "<<" in text:
        return
    problem, launch.problem = launch.problem, ""
    try:
        found = _run(launch, _commands(text))
    except ValueError:
        found = False
    if not found or launch.problem:
        launch.problem = problem


def _commands(text: str) -> list[list[str]]:
    """The simple commands. Raises ValueError for anything else between them, or for an open quote."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    is_redirected = False
    for token in lexer:
        if token and set(token) <= set(";&|()<>\n"):
            if set(token) <= {"\n", ";"} or token.strip("\n") == "&&":
                commands.append([])
                is_redirected = False
            elif token in (">", ">>", "<", ">&", "&>"):
                is_redirected = True
            else:
                raise ValueError(token)
        elif is_redirected:
            is_redirected = False
        else:
            commands[-1].append(token)
    return [words for words in commands if words]


def _run(launch: Launch, commands: list[list[str]]) -> bool:
    """Whether the row of commands comes to one that starts the Python, or what leads to it."""
    shell: dict[str, str] = {}
    """Variables that are not exported."""
    for place, words in enumerate(commands):
        values: dict[str, str] = {}
        while words and ASSIGNMENT.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            expanded = _expanded(value, {**shell, **launch.environment})
            if expanded is None:
                return False
            values[name] = expanded
        if not words:
            for name, value in values.items():
                (launch.environment if name in launch.environment else shell)[name] = value
            continue
        name, is_exec = words[0], False
        if name == "exec":
            words, is_exec = words[1:], True
            if not words or words[0].startswith("-"):
                return False
        if is_exec or place == len(commands) - 1 or is_python(words[0]):
            expanded = _expanded(words[0], {**shell, **launch.environment})
            launch.environment.update(values)
            launch.words = [expanded or "", *words[1:]]
            return bool(expanded) and words[0] not in NO_PROGRAM
        if not _builtin(launch, words, shell):
            return False
    return False


def _builtin(launch: Launch, words: list[str], shell: dict[str, str]) -> bool:
    """Follow a command that comes before; whether that can be done. What is no builtin changes nothing in the shell."""
    name, known = words[0], {**shell, **launch.environment}
    if name == "cd":
        target = _expanded(words[1], known) if len(words) == 2 else None
        if target is None:
            return False
        launch.folder = os.path.join(launch.folder, target)
    elif name == "export":
        for word in words[1:]:
            variable, equals, value = word.partition("=")
            expanded = _expanded(value, known) if equals else known.get(variable, "")
            if expanded is None or variable.startswith("-"):
                return False
            launch.environment[variable] = expanded
    elif name in (".", "source"):
        target = _expanded(words[1], known) if len(words) == 2 else None
        if (
            target is None
            or not target.endswith("/bin/activate")
            or not os.path.exists(f"{target[:-13]}/pyvenv.cfg")
        ):
            return False
        launch.environment.update(VIRTUAL_ENV=target[:-13], PATH=f"{target[:-9]}:{known.get('PATH', '')}")
        launch.environment.pop("PYTHONHOME", None)
    else:
        return name in HARMLESS or (name not in OPAQUE and "(" not in name)
    return True
