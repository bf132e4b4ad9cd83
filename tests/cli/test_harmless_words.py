"""Nothing that the command line writes makes a terminal do anything, whoever chose the words."""

from __future__ import annotations

import json

import msgspec
import pytest

from dflash_console.cli import main
from dflash_console.cli.status_text import Terminal
from dflash_console.cli.streams import complain, complain_of, harmless_json, harmless_lines
from dflash_console.cli.verify import verify_json
from dflash_console.cli.verify_text import progress, verify_text
from dflash_console.harmless import is_harmless
from dflash_console.verdict import Check, Verdict

EVIL = "/v\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u200b\x7f\u2066\r\nroot@host:~# "


def assert_harmless(text: str) -> None:
    assert all(is_harmless(line) for line in text.split("\n")), ascii(text)


def test_words_on_stderr_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    complain(progress(Verdict("ct200", EVIL, (Check(EVIL, "fail", EVIL),))))
    told = capsys.readouterr().err
    assert_harmless(told)
    assert "\\x1b]0;owned\\x07" in told
    assert "\\u202e" in told


def test_a_fault_of_ours_over_hostile_words_is_shown_harmlessly(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        complain_of(error)
    told = capsys.readouterr().err
    assert_harmless(told)
    assert told.startswith("Traceback (most recent call last):\n")
    assert told.endswith("\n")


@pytest.mark.parametrize(
    "line",
    [
        ["verify", "--venv", EVIL],
        ["status", f"--{EVIL}"],
        ["status", EVIL],
        [EVIL],
        ["verify", "x", "--json", f"--venv={EVIL}", EVIL],
        ["--config", EVIL, "status"],
        ["status", "--config"],
    ],
)
def test_wrong_usage_is_told_harmlessly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: list[str]
) -> None:
    monkeypatch.setenv("DFLASH_CONSOLE_CONFIG", "/nowhere/config.toml")
    assert main(line) == 2
    told = capsys.readouterr()
    assert_harmless(told.err)
    assert_harmless(told.out)


def test_the_texts_and_the_json_of_a_verdict_are_harmless() -> None:
    verdict = Verdict("ct200", EVIL, (Check("origin", "fail", EVIL, (EVIL, "größe")),))
    assert_harmless(verify_text([verdict], Terminal()))
    data = verify_json([verdict])
    assert_harmless(data.decode())
    (told,) = json.loads(data)["results"]
    assert (told["venv"], told["checks"][0]["evidence"]) == (EVIL, [EVIL, "größe"])


def test_escapes_in_json_say_the_same() -> None:
    value = {EVIL: ["\U000e0041", "a\u00a0b", "\u2028", "plain", "größe 中文"]}
    data = harmless_json(msgspec.json.encode(value))
    assert_harmless(data.decode())
    assert json.loads(data) == value
    assert "größe 中文" in data.decode()
    assert harmless_json(b'{"a": 1}') == b'{"a": 1}'


def test_line_breaks_of_our_own_stay() -> None:
    assert harmless_lines("one\ntwo\tthree\n") == "one\ntwo\\tthree\n"
