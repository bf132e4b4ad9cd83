"""What is printed when the console ends by a fault of its own."""

from __future__ import annotations

import traceback

from dflash_console.ui.drawing.line import safe

__all__ = ["crash_report"]

_FRAMES_TOLD = 8


def crash_report(error: BaseException | None) -> str:
    """What to print when the console ends by a fault of its own: no values of variables."""
    if error is None:
        return "dflash-console stopped: it could not go on reading the terminal."
    name = type(error).__name__
    lines = [f"dflash-console stopped by a fault of its own: {name}: {safe(str(error))[:200]}"]
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_TOLD:]
    lines += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    lines.append("The hosts are untouched. Please report the lines above.")
    return "\n".join(lines)
