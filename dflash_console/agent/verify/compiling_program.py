"""What the environment's own interpreter runs to compile its sources; text, since it is not the agent's interpreter."""

from __future__ import annotations

__all__ = ["PROGRAM"]

# For any Python from 3.8 on. Its answers are JSON lines on fd 3, each short enough to be written at once by one of
# several processes.
#
# Only imports at a module's top level count as a link of the chain: those within an `if`, a `try` or a function may
# never be reached.
PROGRAM = r"""
import ast, importlib.machinery, importlib.util, json, marshal, os, re, sys, time

TREE = ast.PyCF_ONLY_AST
FAULTS = (SyntaxError, ValueError)
GLOBAL = re.compile(rb"^[ \t]+global[ \t]+([\w, \t]+)", re.MULTILINE)
BY_CODE = re.compile(
    rb"\b(?:globals|vars|locals|exec|eval|setattr)[ \t]*\(|__getattr__|__dict__|sys\.modules|import[ \t(]*\*"
)
SKIPPED = (OSError, RecursionError, MemoryError)


def say(*words):
    os.write(3, (json.dumps(words) + "\n").encode())


def words(error):
    where = " at line %d" % error.lineno if getattr(error, "lineno", None) else ""
    return (type(error).__name__ + where + ": " + str(getattr(error, "msg", error)))[:500]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def load(data):
    # Bytecode without a source: nothing else is imported in its place.
    if data[:4] != importlib.util.MAGIC_NUMBER:
        raise ValueError("it is bytecode of another Python, or none")
    try:
        marshal.loads(data[16:])
    except Exception:
        raise ValueError("it is cut off, or no bytecode") from None


def alike(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, frozenset)):
        if isinstance(one, frozenset):
            one, other = sorted(one, key=repr), sorted(other, key=repr)
        return len(one) == len(other) and all(map(alike, one, other))
    if hasattr(one, "co_code"):
        names = [name for name in dir(one) if name.startswith("co_")]
        skipped = ("co_filename", "co_lnotab", "co_lines", "co_positions", "co_branches")
        return all(alike(getattr(one, name), getattr(other, name)) for name in names if name not in skipped)
    return one == other or repr(one) == repr(other)


def is_stale(text, source, cached, level):
    data = read(cached)
    if data[:4] != importlib.util.MAGIC_NUMBER:
        return False
    try:
        kept = marshal.loads(data[16:])
    except Exception:
        return True  # cut off: Python goes by the header, and its import ends there
    try:
        code = compile(text, source, "exec", 0, True, level)
    except FAULTS:
        return True
    return kept != code and not alike(kept, code)


def work(items):
    for number, (source, is_wanted, kept) in enumerate(items):
        if time.monotonic() > UNTIL:
            return number
        try:
            text = read(source)
            if is_wanted and source.endswith(".pyc"):
                load(text)
            elif is_wanted and source not in done:
                compile(text, source, "exec", 0, True, 0)
        except (*FAULTS, RecursionError) as error:
            say("broken", source, words(error))
        except SKIPPED:
            text = None
        for cached, level in kept:
            try:
                if text is not None and is_stale(text, source, cached, level):
                    say("stale", cached)
            except SKIPPED:
                pass
    return len(items)


def place(name):
    # The file of a module of the package, an empty text for a mere folder, None when it is not there.
    stem = os.path.join(ROOT, *name.split(".")[1:])
    for path in (stem + "/__init__.py", stem + ".py"):
        if os.path.isfile(path):
            return path
    suffixes = importlib.machinery.EXTENSION_SUFFIXES + [".pyc"]
    if os.path.isdir(stem) or any(os.path.isfile(stem + suffix) for suffix in suffixes):
        return ""
    return None


def targets(node, package):
    # Modules that a statement imports for sure, and names that may be modules.
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names], []
    if not isinstance(node, ast.ImportFrom):
        return [], []
    base = node.module or ""
    if node.level:
        above = package.split(".")
        above = above[: len(above) - node.level + 1]
        base = ".".join(above + ([node.module] if node.module else []))
    return [base], [base + "." + alias.name for alias in node.names]


def name_of(path):
    parts = os.path.relpath(path, ROOT)[: -len(".py")].split(os.sep)
    is_package = parts[-1] == "__init__"
    name = ".".join([PACKAGE] + (parts[:-1] if is_package else parts))
    return name, name if is_package else name.rpartition(".")[0]


def names_in(text, tree):
    # The names that a module may have at its top level; None when code may give it others.
    if BY_CODE.search(text):
        return None
    found = {word.strip().decode("ascii", "replace") for line in GLOBAL.findall(text) for word in line.split(b",")}
    has_walrus = b":=" in text
    stack = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif has_walrus or not isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If)):
            if isinstance(getattr(node, "name", None), str):
                found.add(node.name)
            stack.extend(ast.iter_child_nodes(node))
        elif isinstance(node, ast.Assign):
            stack.extend(node.targets)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            stack.append(node.target)
        elif isinstance(node, ast.If):
            stack.extend(node.body + node.orelse)
    return found


def has_name(path, name):
    # Whether a source may have a name; also when that can't be told.
    if path not in names:
        try:
            text = read(path)
            names[path] = names_in(text, compile(text, path, "exec", TREE, True))
        except (*FAULTS, *SKIPPED):
            names[path] = None
    is_plain = name.isascii() and name != "*" and not name.startswith("__")
    return not is_plain or names[path] is None or name in names[path]


def check_names():
    # What is imported from a source of the package that does not have it, and that is no module either. At the end:
    # by then most sources were parsed.
    for path, line, base, maybe in asked:
        there = place(base)
        for name in maybe if there and there != path else ():
            if time.monotonic() > UNTIL + 1 and there not in names:
                break
            if not has_name(there, name.rpartition(".")[2]) and place(name) is None:
                say("absent", path, line, name)


def follow(waiting, seen):
    while waiting and time.monotonic() < UNTIL:
        path = waiting.pop(0)
        try:
            text = read(path)
            tree = compile(text, path, "exec", TREE, True)
            if path in wanted:
                compile(tree, path, "exec", 0, True, 0)
            names[path] = names_in(text, tree)
        except FAULTS as error:
            say("broken", path, words(error))
            done.add(path)
            say("followed", path)
            continue
        except SKIPPED:
            say("followed", path)
            continue
        done.add(path)
        package = name_of(path)[1]
        for node in tree.body:
            sure, maybe = targets(node, package)
            if isinstance(node, ast.ImportFrom) and (sure[0] + ".").startswith(PACKAGE + "."):
                asked.append((path, node.lineno, sure[0], maybe))
            for name in sure + maybe:
                if not (name + ".").startswith(PACKAGE + "."):
                    continue
                parts = name.split(".")
                for at in range(1, len(parts) + 1):
                    there = place(".".join(parts[:at]))
                    if there is None:
                        if name in sure:
                            say("absent", path, node.lineno, name)
                        break
                    if there.endswith(".py") and there not in seen and (WHOLE or there in wanted):
                        seen.add(there)
                        waiting.append(there)
                        say("link", there)
                    if there and not there.endswith("/__init__.py"):
                        break
        say("followed", path)
    check_names()


names, asked = {}, []
items, chain, seconds, most = json.load(sys.stdin)
UNTIL = time.monotonic() + seconds
done, wanted = set(), {source for source, is_wanted, _ in items if is_wanted}
if chain is not None:
    ROOT, PACKAGE, WHOLE, waiting, seen = chain
    follow(waiting, set(seen))
number = max(1, min(most, len(os.sched_getaffinity(0)), len(items) // 16))
children = []
for at in range(1, number):
    pid = os.fork()
    if pid == 0:
        try:
            say("did", at, number, work(items[at::number]))
        finally:
            os._exit(0)
    children.append(pid)
say("did", 0, number, work(items[::number]))
for pid in children:
    os.waitpid(pid, 0)
"""
