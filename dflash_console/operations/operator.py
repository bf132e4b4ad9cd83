"""Who changes hosts, as the hosts are told."""

from __future__ import annotations

import getpass
import socket

__all__ = ["operator"]


def operator() -> str:
    """Such as `kim@laptop`."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user without a name
        name = "somebody"
    return f"{name}@{socket.gethostname() or 'localhost'}"
