"""Secrets out of command lines before they leave the host.

What is hidden is decided by the name that a value belongs to (`--api-key X`, `HF_TOKEN=X`, `"password": "X"`)
and by the look of the value itself (URLs with credentials, `hf_...`, `sk-...`). When in doubt a value is
hidden, but not a number under a name of the `token` kind: those are the knobs of an LLM server.
"""

from __future__ import annotations

import re

__all__ = ["HIDDEN", "LIMIT", "is_secret_name", "redact", "redact_text"]

HIDDEN = "***"
LIMIT = 400
"""Characters of a redacted command line."""
_WORD_LIMIT = 4096
"""Characters of one argument that are looked at; ten times what can be shown."""

_SECRET_PARTS = ("password", "passwd", "passphrase", "passcode", "secret", "credential", "apikey")
_KEY_OWNERS = frozenset(
    ["access", "account", "admin", "api", "auth", "encryption", "license", "master", "private", "signing"]
)
_TOKEN_OWNERS = frozenset(["access", "api", "auth", "bearer", "hf"])
_LOGIN_WORDS = frozenset(["auth", "authorization", "bearer", "cookie", "cookies", "creds", "pass", "pat"])
_HARMLESS_ENDS = frozenset(
    ["budget", "count", "dir", "endpoint", "env", "expiry", "file", "interval", "length", "limit", "mode"]
).union(["name", "path", "policy", "size", "timeout", "ttl", "type", "uri", "url"])
_SWITCHES = frozenset(["disable", "enable", "no", "skip"])
_LOGIN_FLAGS = frozenset(["u", "user", "proxy-user"])

# A shell word, or a quoted string inside JSON inside a string, or an open quote up to the end.
_VALUE = re.compile(
    r"""(?P<q>\\+["']).*?(?:(?P=q)|\Z)|(?:[^\s&"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*')+|["'].*\Z""", re.DOTALL
)
# A name's length is bounded so that no text makes the search quadratic.
_PAIR = re.compile(r"""([A-Za-z_][\w.-]{0,80})\\*["']?\]?\s*(?:=>|=|:(?!//))\s*""")
_FLAG = re.compile(r"(?<![\w-])(--?[A-Za-z][\w.-]{0,80})\s+(?!--[A-Za-z]|-[A-Za-z](?:\s|\Z))")
_NEXT = re.compile(r"\s+(?!--?[A-Za-z])")
_SCHEME = re.compile(r"(?i)\b(?P<kind>bearer|basic)(?P<between>\s+)[A-Za-z0-9._~+/=-]{6,}")
_AUTHORIZATION = re.compile(r"""(?i)(?P<name>\bauthorization\\*["']?\s*[:=]\s*\\*["']?)[^"'\\\r\n]+""")
_URL_LOGIN = re.compile(
    r"(?<=://)(?!\[)(?:[^\s/?#'\"@:]*:(?!\d{1,5}(?:[/\s?#'\"]|\Z))[^\s'\"]*|[^\s/?#'\"]*)@"
)
_LOOKS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{4,}|hf_[A-Za-z0-9]{20,}"
    r"|sk-[A-Za-z0-9_-]{4,}"
    r"|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[a-z]-[A-Za-z0-9-]{8,}|nvapi-[A-Za-z0-9_-]{16,}|AIza[A-Za-z0-9_-]{30,}"
    r"|A(?:KIA|SIA)[A-Z0-9]{16}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"
    r")"
)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*\Z")
_SHORT_OPTION = re.compile(r"-[A-Za-z]\Z|--[A-Za-z]")
_ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)=(?P<value>.*)\Z", re.DOTALL)
_KNOB = re.compile(
    r"""["']?(?:[+-]?\d{1,9}(?:\.\d+)?|<[^>]*>|true|false|none|null)["']?,?\Z""", re.IGNORECASE
)


def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or key of this name holds a secret: `--api-key`, `HF_TOKEN`, `authToken`."""
    return _kind_of(name) != ""


def redact(argv: list[str]) -> str:
    """The command line for people: joined by spaces, secrets as `***`, at most 400 characters."""
    shown: list[str] = []
    hiding = ""
    length = 0
    for whole in argv:
        if length > 2 * _WORD_LIMIT:
            break
        word = whole if len(whole) <= _WORD_LIMIT else _cut(whole)
        if hiding and not _SHORT_OPTION.match(word):
            text = word if _is_knob(hiding, word) else HIDDEN
            hiding = hiding if hiding == "keys" else ""
        elif _OPTION.match(word):
            hiding = "login" if word.lstrip("-") in _LOGIN_FLAGS else _kind_of(word)
            text = word
        else:
            hiding = ""
            match = _ASSIGNMENT.match(word)
            kind = _kind_of(match.group("name")) if match else ""
            if match and kind and not _is_knob(kind, match.group("value")):
                text = match.group("name") + "=" + HIDDEN
            else:
                text = _redact_text(word)
        text = _quote(text)
        shown.append(text)
        length += len(text)
    line = " ".join(shown)
    return line if len(line) <= LIMIT else line[: LIMIT - 1] + "…"


def redact_text(text: str) -> str:
    """Any text (a shell's `-c` line, ExecStart, a process title) with its secrets as `***`; same length
    limit."""
    line = _redact_text(text if len(text) <= 2 * _WORD_LIMIT else _cut(text))
    return line if len(line) <= LIMIT else line[: LIMIT - 1] + "…"


def _redact_text(text: str) -> str:
    if len(text) < 4:
        return text
    text = _URL_LOGIN.sub(HIDDEN + "@", text)
    text = _AUTHORIZATION.sub(lambda match: match.group("name") + HIDDEN, text)
    text = _SCHEME.sub(lambda match: match.group("kind") + match.group("between") + HIDDEN, text)
    text = _hide_values(text, _FLAG)
    text = _hide_values(text, _PAIR)
    return _LOOKS.sub(HIDDEN, text)


def _hide_values(text: str, heads: re.Pattern[str]) -> str:
    """Hide what follows each head (a flag, `name=`, `"name": `) whose name is a secret's."""
    parts: list[str] = []
    done = 0
    head = heads.search(text)
    while head:
        name, end = head.group(1), head.end()
        kind = "login" if name.startswith("-") and name.lstrip("-") in _LOGIN_FLAGS else _kind_of(name)
        value = _VALUE.match(text, end) if kind else None
        while value and not _is_knob(kind, value.group()):
            parts += [text[done:end], HIDDEN]
            done = end = value.end()
            another = _NEXT.match(text, end) if kind == "keys" and heads is _FLAG else None
            value = _VALUE.match(text, another.end()) if another else None
            end = another.end() if another and value else end
        head = heads.search(text, end)
    return "".join(parts) + text[done:]


def _kind_of(name: str) -> str:
    """How a name is secret: `token`, `keys` (a list of values may follow) or `other`; empty when it is
    not."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[0] in _SWITCHES:
        return ""
    joined = "".join(words)
    last = words[-1]
    if last in _HARMLESS_ENDS and joined != "pass":
        return ""
    if any(part in joined for part in _SECRET_PARTS):
        return "keys" if "apikey" in joined or last.endswith("s") else "other"
    if "key" in words or "keys" in words:
        if len(words) == 1 or _KEY_OWNERS.intersection(words):
            return "keys" if "api" in words or "keys" in words else "other"
        return ""
    if any(word.endswith("token") for word in words):
        return "token"
    if "tokens" in words and _TOKEN_OWNERS.intersection(words):
        return "keys"
    if last in _LOGIN_WORDS or (last == "pwd" and len(words) > 1 and words[0] != "old"):
        return "other"
    return ""


def _is_knob(kind: str, value: str) -> bool:
    """Whether a value under a secret's name is none: `--eos-token-id 2`, `--mask-token <|mask|>`, `--user
    0:0`."""
    if kind == "login":
        owner, colon, password = value.partition(":")
        return not colon or not password or (owner + password).isdigit()
    return not value or (kind == "token" and _KNOB.match(value) is not None)


def _cut(text: str) -> str:
    """The head of a long text without its last word, which may be half a secret that no rule knows any
    more."""
    return text[:_WORD_LIMIT].rpartition(" ")[0] + "…"


def _quote(text: str) -> str:
    """A word as a reader can tell it from its neighbours; not meant for a shell."""
    if not text:
        return "''"
    words = text.split()
    return text if len(words) == 1 and words[0] == text else "'" + " ".join(words) + "'"
