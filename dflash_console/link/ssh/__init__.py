"""The SSH transport: the only place that imports asyncssh, and itself imported only when a host needs it.

`connect` takes a host of the config to an open connection. asyncssh is told everything explicitly and reads
no config by itself.
"""

from __future__ import annotations

from dflash_console.link.ssh.connection import SshConnection, connect

__all__ = ["SshConnection", "connect"]
