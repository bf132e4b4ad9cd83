"""The copy process: a second agent beside the one that watches, which lists, sends, receives and swaps the package.

`serve` is its loop, `pipe` its link to the console. It reads for the source's side (`looking`, `listing`, `sending`)
and, for a target, takes what comes into a stage and swaps it in (`target`). Nothing is written before `claim`.
"""

from __future__ import annotations

__all__: list[str] = []
