"""The story's three hosts as they were: two with services and trees to move between, one hypervisor above."""

from __future__ import annotations

from tests.hosts.fleet import Fleet
from tests.hosts.gpus import driver, install_library
from tests.hosts.host import Host
from tests.hosts.layout import put
from tests.hosts.venvs import lay_venv, lay_wheel, share_cache
from tests.nvml import build
from tests.wheels import wheel

__all__ = ["NAMES", "add_unit", "lay_story", "reset_story"]

NAMES = ("ct129", "ct200", "kpro6")
VENVS: dict[str, dict[str, str | None]] = {
    "ct129": {"/root/ml-env": "0.5.13.post1"},
    "ct200": {"/root/venv_sglang": "0.5.9", "/root/venv": None},
    "kpro6": {"/root/venv_new": "0.5.23"},
}
"""Host to venv to its sglang version: no DFlash, dflash_worker, dflash_worker_v2, and a venv without any."""

SERVER = """\
import argparse, http.server
words = argparse.ArgumentParser()
words.add_argument("--port", type=int)
words.add_argument("--api-key")
address = ("127.0.0.1", words.parse_args().port)
http.server.HTTPServer(address, http.server.SimpleHTTPRequestHandler).serve_forever()
"""
"""Stands where sglang.launch_server would: a Python of the venv that listens on --port."""

SERVICE = """\
[Unit]
Description=SGLang with DFlash
[Service]
ExecStart=/root/ml-env/bin/python3 /root/launch_server.py --port 30000 --api-key not-for-the-screen
Restart=on-failure
"""


def lay_story(fleet: Fleet) -> None:
    """Lays GPUs, venvs and services on hosts that are not booted yet, and shows them the tests' cache."""
    library = build(fleet.slot.folder)
    for host in fleet:
        install_library(host, library)
        share_cache(host)
        for venv, version in VENVS[host.name].items():
            lay_venv(host, venv)
            if version:
                lay_wheel(host, venv, wheel(version))
    put(fleet["ct129"].root, "/root/launch_server.py", SERVER)
    put(fleet["ct129"].root, "/etc/systemd/system/sglang-dflash.service", SERVICE)


def reset_story(fleet: Fleet) -> None:
    """Every GPU idle and well."""
    for host in fleet:
        driver(host).write()


def add_unit(host: Host, name: str, text: str) -> None:
    """Writes a unit file that is gone after the test, and has systemd read it."""
    host.write(f"/etc/systemd/system/{name}", text)
    host.run("systemctl daemon-reload")
