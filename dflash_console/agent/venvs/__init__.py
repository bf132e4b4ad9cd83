"""Virtual environments: found, and read without importing or running anything of theirs."""

from __future__ import annotations

from .section import VenvSection

__all__ = ["VenvSection"]
