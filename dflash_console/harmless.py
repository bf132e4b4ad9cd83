"""Which characters may go to a terminal as they are, and what becomes of the others.

Harmful are those that a terminal acts on, that reorder text, and that can't be seen: what looks the same on the
screen should be the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["is_harmless", "made_harmless"]

# The Unicode property Default_Ignorable_Code_Point (DerivedCoreProperties.txt, 14.0 to 16.0), most of which
# `str.isprintable` lets pass, and the blank Braille pattern, which is drawn as nothing.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def is_harmless(text: str) -> bool:
    """Whether every character can be seen and does nothing; a plain space counts as seen."""
    return text.isprintable() and (text.isascii() or _UNSEEN.search(text) is None)


def made_harmless(text: str, picture: Callable[[str], str]) -> str:
    """`text` with `picture` of each harmful character in its place; pictures are taken to be harmless."""
    if is_harmless(text):
        return text
    seen = _UNSEEN.sub(lambda found: picture(found[0]), text)
    return "".join([char if char.isprintable() else picture(char) for char in seen])
