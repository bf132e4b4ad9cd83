"""One judgement on characters, for remote and for local text."""

from __future__ import annotations

import sys
import unicodedata

from dflash_console.harmless import is_harmless, made_harmless
from dflash_console.link.clean import clean
from dflash_console.ui.drawing.line import safe

# Words of the names of characters that are drawn as nothing, or not by themselves (UnicodeData.txt).
UNSEEN = (
    "FILLER",
    "VARIATION SELECTOR",
    "ZERO WIDTH",
    "INVISIBLE",
    "GRAPHEME JOINER",
    "INHERENT",
    "PATTERN BLANK",
)
SEEN = ("GAP FILLER", "LINE FILLER", "KHITAN", "FILLER CHARACTER", "SYMBOL FOR", "PICTURE")
IGNORABLE = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    (0xE0000, 0xE0FFF),
)
"""Default_Ignorable_Code_Point of DerivedCoreProperties.txt, Unicode 14.0."""


def unseen() -> list[str]:
    chars = [chr(code) for first, last in IGNORABLE for code in range(first, last + 1)]
    for code in range(sys.maxunicode + 1):
        name = unicodedata.name(chr(code), "")
        if any(word in name for word in UNSEEN) and not any(word in name for word in SEEN):
            chars.append(chr(code))
    return chars


def test_nothing_that_can_not_be_seen_passes_for_nothing() -> None:
    chars = unseen()
    assert {"\u034f", "\u2800", "\u3164", "\ufe0f", "\U000e0100"} <= {*chars}
    for char in chars:
        assert not is_harmless(f"a{char}b"), f"U+{ord(char):04X}"
        assert clean(f"a{char}b") == f"a<U+{ord(char):04X}>b"
        assert safe(f"a{char}b") == "a·b"


def test_what_people_write_passes_as_it_is() -> None:
    for text in (
        "Grüße",
        "中文字符",
        "한국어 텍스트",
        "नमस्ते",
        "e\u0301",
        "🚀 → ✓",
        "⠋⠙⠹",
        "▁▂▃▄▅▆▇█",
        "№ ½ ∑",
    ):
        assert is_harmless(text)
        assert clean(text) == safe(text) == text


def test_each_harmful_character_gets_its_picture_and_the_others_stay() -> None:
    assert made_harmless("a\x1bb\u2800c", lambda char: f"[{ord(char):x}]") == "a[1b]b[2800]c"
    assert made_harmless("plain", lambda _: "?") == "plain"
