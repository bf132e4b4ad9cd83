"""What is known of the fleet now: a watcher for each host, reconnect, the last good picture and its age.

`Fleet(config).run()` watches; `views()` gives one `HostView` a host. `Pace` holds the durations, `gpu_key`
names a GPU over time, as in `HostView.utilization`.
"""

from __future__ import annotations

from dflash_console.fleet.backoff import Pace
from dflash_console.fleet.fleet import Fleet
from dflash_console.fleet.view import HostView
from dflash_console.model import SECTIONS, Section, gpu_key

__all__ = ["SECTIONS", "Fleet", "HostView", "Pace", "Section", "gpu_key"]
