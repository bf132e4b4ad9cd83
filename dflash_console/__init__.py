"""A terminal console for a small fleet of GPU hosts that run SGLang with DFlash speculative decoding."""

from __future__ import annotations

__version__ = "0.1.0"
