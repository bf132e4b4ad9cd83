"""`python -m dflash_console` is the program `dflash-console`."""

from __future__ import annotations

import sys

from dflash_console.cli import main

if __name__ == "__main__":
    sys.exit(main())
