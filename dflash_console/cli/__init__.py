"""The command line: `main` is the program `dflash-console`.

Commands import what they need when they run: `--help` pays for nothing, and `status` never for the screen.
"""

from __future__ import annotations

from dflash_console.cli.app import main

__all__ = ["main"]
