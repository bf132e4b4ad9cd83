"""The verdict on a host key, and the order in which keys are asked for."""

from __future__ import annotations

import base64
import hmac
from pathlib import Path

import pytest

from dflash_console.link.files import Files
from dflash_console.link.hostkeys import accepted_algorithms, fingerprint, judge, judge_authority
from dflash_console.link.knownhosts import Entry, KnownHosts, key_type, known_in, lines_for, read_lists
from dflash_console.link.route import Route


def key(kind: str, seed: str) -> bytes:
    name = kind.encode()
    return len(name).to_bytes(4, "big") + name + seed.encode()


def entry(wire: bytes, marker: str = "", line: int = 1) -> Entry:
    assert marker in ("", "@cert-authority", "@revoked")
    return Entry(marker, wire, "/k", line)  # type: ignore[arg-type]


def text(hosts: str, wire: bytes, marker: str = "") -> str:
    return f"{marker} {hosts} {key_type(wire)} {base64.b64encode(wire).decode()} comment\n".lstrip()


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


ED, RSA, OTHER = key("ssh-ed25519", "one"), key("ssh-rsa", "two"), key("ssh-ed25519", "three")
ALGORITHMS = [
    "ssh-ed25519-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "rsa-sha2-512",
    "rsa-sha2-256",
]


def test_a_key_is_known_unknown_changed_or_revoked() -> None:
    known = KnownHosts("h", (entry(ED), entry(RSA, line=2)))
    assert judge(known, ED).state == "known"
    assert judge(KnownHosts("h"), ED).state == "unknown"
    changed = judge(known, OTHER)
    assert changed.state == "changed"
    assert changed.entry == entry(ED)
    revoked = judge(KnownHosts("h", (entry(ED), entry(ED, "@revoked"))), ED)
    assert revoked.state == "revoked"


def test_a_key_known_for_the_bare_host_only_counts_if_it_is_the_same() -> None:
    known = KnownHosts("[h]:2222", (), (entry(ED),))
    assert judge(known, ED).state == "known"
    assert judge(known, OTHER).state == "unknown"


def test_a_key_that_differs_from_the_addresss_is_a_change() -> None:
    known = KnownHosts("h", (entry(ED),), by_address=(entry(OTHER),))
    assert judge(known, ED).state == "changed"


def test_an_authority_is_no_host_key_and_a_host_key_no_authority() -> None:
    known = KnownHosts("h", (entry(ED, "@cert-authority"),))
    assert judge(known, ED).state == "unknown"
    assert judge_authority(known, ED).state == "known"
    assert judge_authority(KnownHosts("h", (entry(ED),)), ED).state == "unknown"
    assert (
        judge_authority(KnownHosts("h", (entry(ED, "@cert-authority"), entry(ED, "@revoked"))), ED).state
        == "revoked"
    )


def test_no_key_passes_while_the_revoked_ones_can_not_be_read() -> None:
    assert judge(KnownHosts("h", (entry(ED),), obstacle="gone"), ED).state == "revoked"


def test_known_types_are_asked_for_first() -> None:
    rsa = KnownHosts("h", (entry(RSA),))
    assert accepted_algorithms(ALGORITHMS, rsa, certificates=True) == [
        *("rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519", "ecdsa-sha2-nistp256")
    ]
    assert accepted_algorithms(ALGORITHMS, KnownHosts("h"), certificates=True) == ALGORITHMS[2:]
    assert accepted_algorithms(ALGORITHMS, KnownHosts("h", (entry(ED),)), certificates=True) == ALGORITHMS[2:]


def test_certificates_are_asked_for_if_an_authority_is_known() -> None:
    known = KnownHosts("h", (entry(OTHER, "@cert-authority"), entry(RSA)))
    assert accepted_algorithms(ALGORITHMS, known, certificates=True) == [
        *ALGORITHMS[:2],
        *("rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519", "ecdsa-sha2-nistp256"),
    ]
    assert accepted_algorithms(ALGORITHMS, known, certificates=False)[0] == "rsa-sha2-512"


@pytest.mark.parametrize(
    ("hosts", "is_there"),
    [
        ("h.example", True),
        ("H.Example,other", True),
        ("*.example", True),
        ("h?example", True),
        ("*.example,!h.example", False),
        ("!*.example,h.example", False),
        ("h.example.org", False),
        ("h", False),
        (hashed("h.example"), True),
        (hashed("other"), False),
        ("|1|nonsense", False),
        ("|2|eA==|eA==", False),
        ("[h.example]:2222", False),
    ],
)
def test_which_lines_speak_of_a_host(hosts: str, is_there: bool) -> None:
    found = list(lines_for("h.example", "# comment\n" + text(hosts, ED), "/k"))
    assert found == ([Entry("", ED, "/k", 2)] if is_there else [])


@pytest.mark.parametrize(
    ("pattern", "is_there"),
    [
        ("*a" * 40 + "*", True),
        ("*a" * 40 + "b", False),
        ("?" * 200, True),
        ("?" * 199, False),
        ("*" * 300, True),
    ],
)
def test_a_pattern_of_many_stars_is_soon_done(pattern: str, is_there: bool) -> None:
    # Tried in every way, as a regular expression would, this takes longer than the universe is old.
    assert bool(list(lines_for("a" * 200, text(pattern, ED), "/k"))) is is_there


def test_lines_that_make_no_sense_are_passed_over() -> None:
    good = text("h", ED)
    nonsense = (
        "h\nh ssh-ed25519\nh ssh-ed25519 %%%\nh ssh-rsa "
        + good.split()[2]
        + "\n@what h "
        + good[2:]
        + "\x0b\n"
    )
    assert list(lines_for("h", nonsense + good, "/k")) == [Entry("", ED, "/k", 7)]


def test_the_names_that_are_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(
        text("[h]:2222", ED) + text("h", RSA) + text("alias", OTHER) + text("[10.0.0.1]:2222", OTHER)
    )
    route = Route("n", "ssh n", "H", 2222, "u", user_known_hosts=(str(file),))
    known = known_in(read_lists(route, Files()), route, "10.0.0.1")
    assert [each.key for each in known.entries] == [ED]
    assert [each.key for each in known.portless] == [RSA]
    assert known.by_address == ()
    route = Route("n", "ssh n", "H", 2222, "u", user_known_hosts=(str(file),), check_host_ip=True)
    known = known_in(read_lists(route, Files()), route, "10.0.0.1")
    assert [each.key for each in known.by_address] == [OTHER]
    route = Route("n", "ssh n", "H", 2222, "u", user_known_hosts=(str(file),), host_key_alias="Alias")
    known = known_in(read_lists(route, Files()), route)
    assert [each.key for each in known.entries] == [OTHER]
    assert known.portless == ()


def test_a_fingerprint_is_what_ssh_keygen_prints() -> None:
    wire = base64.b64decode("AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f")
    assert key_type(wire) == "ssh-ed25519"
    assert fingerprint(wire).startswith("SHA256:")
    assert len(fingerprint(wire)) == len("SHA256:") + 43
