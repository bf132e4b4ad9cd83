"""What a host says can do nothing to the terminal that shows it."""

from __future__ import annotations

import json
import random
import sys
import unicodedata

import msgspec
import pytest

from dflash_console.errors import AgentFailed
from dflash_console.harmless import is_harmless
from dflash_console.link.clean import ANSWER_LIMIT, STRING_LIMIT, clean, clean_bytes, decode
from dflash_console.model import Answer, Filesystem, HostInfo, Missing, Note, Sample

HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}
EVERY_CODE_POINT = range(sys.maxunicode + 1)
ESCAPES = [
    *(
        "\x1b[31m",
        "\x1b[2J",
        "\x1b[?1049h",
        "\x1b[38:2:1:2:3m",
        "\x1b[<0;1;1M",
        "\x1b[1;2 q",
        "\x9b31m",
        "\x1b[=1c",
    ),
    *(
        "\x1b]0;title\x07",
        "\x1b]52;c;aGk=\x1b\\",
        "\x1b]8;;http://x\x1b\\",
        "\x9d0;t\x9c",
        "\x1b]0;t\x9c",
        "\x9d0;t\x07",
    ),
    *(
        "\x1bPq#0\x1b\\",
        "\x90q\x9c",
        "\x1b_app\x1b\\",
        "\x9fapp\x9c",
        "\x1b^pm\x1b\\",
        "\x9epm\x9c",
        "\x1bXsos\x1b\\",
        "\x98s\x9c",
    ),
    *("\x1bc", "\x1b(0", "\x1b7", "\x1b#8", "\x1b%G", "\x1bN"),
]


def does_nothing(text: str) -> bool:
    return all(unicodedata.category(char) not in HARMFUL for char in text)


def note(text: str) -> bytes:
    return json.dumps({"type": "note", "section": "gpu", "text": text}).encode()


def test_no_code_point_comes_through_that_a_terminal_acts_on() -> None:
    for start in range(0, len(EVERY_CODE_POINT), 997):
        text = "".join(map(chr, EVERY_CODE_POINT[start : start + 997]))
        shown = clean(text, 100_000)
        assert does_nothing(shown), f"within U+{start:04X} and the 997 after it"


def test_each_code_point_alone_is_kept_or_shown() -> None:
    for code in EVERY_CODE_POINT:
        char = chr(code)
        shown = clean(char)
        assert shown == char if is_harmless(char) else does_nothing(shown), f"U+{code:04X}"
        # Only what opens a control sequence may vanish.
        assert shown or code in (0x90, 0x98, 0x9B, 0x9D, 0x9E, 0x9F), f"U+{code:04X}"


@pytest.mark.parametrize("escape", ESCAPES, ids=ascii)
def test_an_escape_sequence_goes_and_its_surroundings_stay(escape: str) -> None:
    assert clean(f"a{escape}b") == "ab"


@pytest.mark.parametrize("escape", ESCAPES, ids=ascii)
def test_an_unfinished_escape_sequence_does_no_harm(escape: str) -> None:
    for end in range(1, len(escape)):
        assert does_nothing(clean(f"a{escape[:end]}"))
        assert clean(f"a{escape[:end]}").startswith("a")


def test_text_after_a_broken_off_string_is_still_shown() -> None:
    assert clean("\x1b]0;title\x1b[31mERROR: cuda\x1b[0m") == "ERROR: cuda"


def test_any_mixture_is_harmless_and_short_enough() -> None:
    rng = random.Random(7)
    alphabet = [
        *"ab [];?\\",
        "\x07",
        "\x18",
        "\n",
        "\r",
        "\t",
        "\x7f",
        "\x85",
        "\u202e",
        "\u200b",
        "\ud800",
        "中",
        *ESCAPES,
    ]
    alphabet += [chr(code) for code in (0x1B, 0x90, 0x98, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F)]
    for _ in range(20_000):
        text = "".join(rng.choices(alphabet, k=rng.randrange(20)))
        shown = clean(text, 12)
        assert does_nothing(shown), ascii(text)
        assert len(shown) <= 12


def test_what_is_seen_of_controls_and_marks() -> None:
    assert clean("a\x00b\nc\rd\x7f") == "a␀b␊c␍d␡"
    assert clean("tab\tand no-break\u00a0space") == "tab and no-break space"
    assert clean("evil\u202egpj.exe") == "evil<U+202E>gpj.exe"
    assert clean("zero\u200bwidth\ufeff") == "zero<U+200B>width<U+FEFF>"
    assert clean("path\udcff") == "path\ufffd"
    assert clean("中文 é 🚀") == "中文 é 🚀"


def test_long_text_is_cut_with_a_mark() -> None:
    assert clean("x" * 10, 10) == "x" * 10
    assert clean("x" * 11, 10) == "x" * 9 + "…"
    assert clean("\x1b[m" * 100_000, 10) == "…"
    assert len(clean("\u202e" * 10_000)) == STRING_LIMIT


def test_bytes_become_one_line() -> None:
    assert clean_bytes(b"  one\r\n\n\xfftwo\x1b[0m\n") == "one | \ufffdtwo"
    assert len(clean_bytes(b"x\n" * 10_000, 50)) == 50


# ---- frames


def test_a_plain_frame_is_decoded_as_it_is() -> None:
    assert decode(note('a "quoted" \\ path /x')) == Note("gpu", 'a "quoted" \\ path /x')


def test_strings_and_keys_of_a_frame_are_cleaned() -> None:
    frame = {
        "type": "sample",
        "at": 1,
        "venvs": [
            {
                "path": "/v\x1b[31m",
                "source": "found",
                "python": {"missing": "error", "detail": "\u202e"},
                "packages": {"to\x07rch": "2\x00"},
                "package": {"missing": "not_found"},
            }
        ],
    }
    sample = decode(json.dumps(frame).encode())
    assert isinstance(sample, Sample)
    assert isinstance(sample.venvs, list)
    venv = sample.venvs[0]
    assert venv.path == "/v"
    assert venv.python == Missing("error", "<U+202E>")
    assert venv.packages == {"to␇rch": "2␀"}


def test_unescaped_text_of_a_frame_is_cleaned_too() -> None:
    payload = '{"type":"note","section":"gpu","text":"é\x7f \u202e\x9b2J"}'.encode()
    assert decode(payload) == Note("gpu", "é␡ <U+202E>")


def test_undecodable_bytes_of_a_path_arrive() -> None:
    assert decode(note("/srv/\udcff\udcfe")) == Note("gpu", "/srv/\ufffd\ufffd")


def test_a_long_string_is_cut_however_the_frame_looks() -> None:
    for filler in ("", "\n", '"', "\\", '\\"', "/", "é", '"\\x', '\\\\"'):
        for text in (filler + "x" * 50_000, (filler or "x") * 5000, ("x" * 4000 + filler) * 3):
            for payload in (note(text), json.dumps(json.loads(note(text)), ensure_ascii=False).encode()):
                message = decode(payload)
                assert isinstance(message, Note)
                assert len(message.text) == STRING_LIMIT
                assert message.text == clean(text)


def test_half_a_pair_is_told_from_a_whole_one_and_from_words_that_look_so() -> None:
    for text, shown in (
        ("\ud83d\ude80", "🚀"),
        ("\\ud800", "\\ud800"),
        ("\\\ud800", "\\\ufffd"),
        ("\ude80\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude80x", "\ufffd🚀x"),
    ):
        message = decode(json.dumps({"type": "note", "section": "gpu", "text": text}).encode())
        assert message == Note("gpu", shown)


def test_an_answers_raw_json_is_clean() -> None:
    for text in ("plain", "\x1b[31mred", "x" * 9000):
        message = decode(json.dumps({"type": "answer", "id": 1, "ok": {"log": [text]}}).encode())
        assert isinstance(message, Answer)
        assert msgspec.json.decode(message.ok) == {"log": [clean(text)]}


def test_only_an_answer_that_is_waited_for_is_looked_into() -> None:
    frame = json.dumps({"type": "answer", "id": 7, "ok": ["\x1b"] * 1000, "error": "\x1b"}).encode()
    assert decode(frame, {8}) == Answer(7)
    assert (
        decode(frame, {7})
        == decode(frame)
        == Answer(7, msgspec.Raw(b'["%s"%s]' % ("␛".encode(), b"".join([',"␛"'.encode()] * 999))), "␛")
    )


@pytest.mark.parametrize("value", ["1", "[]", "{}", '"\\u0001"', '"a,b"', '{"\\u0001":[1,2]}'])
def test_an_answer_of_too_many_values_is_refused_and_a_long_text_is_not(value: str) -> None:
    many = "[" + ",".join([value] * (ANSWER_LIMIT + 1)) + "]"
    with pytest.raises(AgentFailed, match="values; the limit is"):
        decode(f'{{"type":"answer","id":1,"ok":{many}}}'.encode())
    long = decode(json.dumps({"type": "answer", "id": 1, "ok": "\n" * 1_000_000}).encode())
    assert isinstance(long, Answer)


def test_what_the_model_does_not_know_is_left_out_or_refused() -> None:
    deep = "[" * 300_000 + "]" * 300_000
    for junk in ("[1" + ",1" * 300_000 + "]", "[[]" + ",[]" * 300_000 + "]", '"\x7f"', deep):
        for spoilt in ("", ',"z":"\\u0001"'):
            frame = f'{{"type":"sample","at":1,"x":{junk}{spoilt}}}'.encode()
            if junk is deep:
                with pytest.raises(AgentFailed):
                    decode(frame)
            else:
                assert decode(frame) == Sample(1)


def test_a_struct_or_the_reason_why_there_is_none() -> None:
    info = {
        "hostname": "h",
        "boot_id": "b",
        "uptime": 1,
        "load": [0, 0, 0],
        "cpus": 1,
        "memory_total": 1,
        "memory_available": 1,
        "shm": {"missing": "error"},
        "root": {"mount": "/", "kind": "ext4", "total": 2, "free": 1},
    }
    sample = decode(json.dumps({"type": "sample", "at": 1, "host": info}).encode())
    assert isinstance(sample, Sample)
    assert isinstance(sample.host, HostInfo)
    assert sample.host.root == Filesystem("/", "ext4", 2, 1)
    assert sample.host.shm == Missing("error")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"type":"note","section":"a","text":"\xff"}{',
        b'"\\ud800',
        b'{"a":NaN,"b":"\\u0000"}',
        b'["\\u0000",' + b"[" * 200_000,
        b'{"type":"sample","at":1e999}',
        b'{"type":"sample","at":"\\u0000"}',
        b'{"type":"answer","id":' + b"9" * 5000 + b',"error":"\\u0000"}',
    ],
    ids=lambda payload: ascii(payload[:30]),
)
def test_nonsense_is_an_agent_that_failed(payload: bytes) -> None:
    with pytest.raises(AgentFailed) as caught:
        decode(payload)
    assert does_nothing(str(caught.value))
    assert len(str(caught.value)) < 600
