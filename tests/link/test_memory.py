"""What a transfer frees goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import random
from dflash_console.link.memory import give_back_large_pieces

if {is_mended}:
    give_back_large_pieces()

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20

before, kept = held(), []
dice = random.Random(1)
pieces = []
for number in range(4000):
    # Blocks that are freed in another order than they came, with small things between them.
    pieces.append(bytes(dice.randrange(200 << 10, 400 << 10)))
    kept.append(bytes(5000))
    if len(pieces) > 60:
        del pieces[dice.randrange(len(pieces))]
del pieces[:]
print(held() - before - (len(kept) * 5000 >> 20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the habit")
def test_blocks_that_are_freed_do_not_stay_with_the_process() -> None:
    def more(is_mended: bool) -> int:
        command = [sys.executable, "-c", PROGRAM.format(is_mended=is_mended)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout)

    assert more(True) < 8
    assert more(False) > 8, "glibc has lost the habit: the module can go"
