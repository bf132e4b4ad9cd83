"""The test ground itself: hosts come up, faults are real and are undone, nothing of a run stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.commands import sh
from tests.hosts.fleet import Fleet
from tests.hosts.slot import BASE, Slot

KILLED_RUN = """
import sys, time
from tests.hosts.fleet import Fleet
with Fleet(["alone"]) as fleet:
    fleet.boot()
    print(fleet.slot.number, flush=True)
    time.sleep(600)
"""


def test_a_host_is_a_machine_of_its_own(hosts: Fleet) -> None:
    host = hosts["ct200"]
    assert host.ssh("hostname; ps -o comm= -p 1") == "ct200\nsystemd\n"
    assert host.ssh("systemctl is-system-running") == "running\n"
    assert host.ssh("journalctl --quiet --boot --unit ssh.service --lines 1")
    boot_ids = {each.ssh("cat /proc/sys/kernel/random/boot_id") for each in hosts}
    assert len(boot_ids) == 3


def test_every_fault_is_undone(hosts: Fleet) -> None:
    frozen, cut, off = hosts["ct129"], hosts["ct200"], hosts["kpro6"]
    key = cut.host_key()
    off.write("/etc/motd", "changed")
    cut.new_host_key()
    cut.stop_sshd()
    frozen.freeze()
    cut.cut()
    off.power_off()
    for host in hosts:
        assert host.ssh("echo in", check=False, timeout=30) == ""
    hosts.restore()
    for host in hosts:
        assert host.ssh("echo in") == "in\n"
    assert cut.host_key() == key
    assert off.ssh("cat /etc/motd") != "changed"


def test_a_write_twice_is_undone_to_the_first_content(hosts: Fleet) -> None:
    host = hosts["ct129"]
    before = host.ssh("cat /etc/debian_version")
    host.write("/etc/debian_version", "1\n")
    host.write("/etc/debian_version", "2\n")
    assert host.ssh("cat /etc/debian_version") == "2\n"
    host.restore()
    assert host.ssh("cat /etc/debian_version") == before


@pytest.mark.real_hosts
def test_a_killed_run_is_cleared_by_the_next_and_a_living_one_is_not(real_hosts_can_boot: None) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED_RUN], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        number = int(run.stdout.readline())
        try:
            with Fleet(["beside"]) as beside:
                beside.boot()
                assert beside.slot.number != number
                assert f"br-dfc{number}" in sh("ip", "link")
        finally:
            run.send_signal(signal.SIGKILL)
    assert f"br-dfc{number}" in sh("ip", "link")
    Slot.claim().release()
    assert f"br-dfc{number}" not in sh("ip", "link")
    assert f"{BASE}/{number}/" not in Path("/proc/self/mountinfo").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/dfc{number}-*"))
