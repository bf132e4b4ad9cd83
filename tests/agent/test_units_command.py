"""What a command line starts is read from its text and from scripts' first lines, or there is a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_console.agent.units.command import find_interpreter, find_port, parse_environment


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def interpreter(command: str, environment: dict[str, str] | None = None) -> str:
    """The interpreter's path; a reason is given back in angle brackets."""
    told = find_interpreter(command.split()[0], command, environment or {})
    return told if isinstance(told, str) else f"<{told['detail']}>"


@pytest.mark.parametrize(
    "command",
    [
        "/opt/v/bin/python -m sglang.launch_server --port 30000",
        "/opt/v/bin/python3.12 /srv/serve.py",
        "/usr/bin/env -u HOME FOO=1 BAR=2 /opt/v/bin/python x.py",
        "/usr/bin/nice -n 5 /opt/v/bin/python x.py",
        "/usr/bin/numactl --cpunodebind=0 -m 0-1 /opt/v/bin/python x.py",
        "/usr/bin/taskset -c 0-7 /usr/bin/timeout -k 5s 60 /opt/v/bin/python x.py",
        "/bin/bash -c exec /opt/v/bin/python x.py",
        "/bin/bash -lc source /opt/v/bin/activate && exec python -m sglang.launch_server",
        "/bin/sh -c cd /srv; . /opt/v/bin/activate; python x.py",
        "/bin/bash -o pipefail -ec source '/opt/v/bin/activate' ; sglang serve | tee log",
        "/usr/bin/env bash -c /opt/v/bin/python3 a.py && /opt/v/bin/python b.py",
        "/bin/sh -c PYTHON=/opt/v/bin/python; $PYTHON x.py",
    ],
)
def test_the_interpreter_is_found_behind_what_stands_before_it(command: str) -> None:
    assert Path(interpreter(command)).parent == Path("/opt/v/bin")


@pytest.mark.parametrize(
    "command",
    [
        "/bin/bash -lc python -m sglang.launch_server",
        "/bin/bash -c source run.sh",
        "/bin/bash -c $VENV/bin/python x.py",
        "/bin/bash -c ${HOME}/v/bin/python x.py; /usr/bin/python3 y.py",
        "/bin/bash -c cd /srv && ./venv/bin/python x.py",
        "/bin/bash -c ~/v/bin/python x.py",
        "/bin/bash -c source /opt/a/bin/activate; /opt/b/bin/python x.py",
        "/bin/bash -c /opt/a/bin/python x.py & /opt/b/bin/python y.py",
        "/bin/bash -c conda activate sglang && python x.py",
        "/bin/bash -c /usr/bin/python3 wait.py; docker run lmsysorg/sglang python3 -m sglang.launch_server",
        "/bin/bash -c",
    ],
)
def test_a_shell_that_hides_its_interpreter_is_said_and_not_guessed(command: str) -> None:
    assert interpreter(command).startswith("<started through a shell: /bin/bash")


def test_a_shells_text_shows_no_secrets() -> None:
    told = interpreter("/bin/bash -lc python -m sglang.launch_server --api-key sk-verysecretverysecret")
    assert "verysecret" not in told
    assert "--api-key ***" in told


@pytest.mark.parametrize("command", ["/usr/bin/docker run x", "/root/.local/bin/uv run python x.py"])
def test_a_launcher_that_chooses_the_environment_itself_is_named(command: str) -> None:
    assert interpreter(command) == f"<started through {Path(command.split()[0]).name}>"


def test_a_script_is_followed_by_its_first_line(tmp_path: Path) -> None:
    python = tmp_path / "v" / "bin" / "python3.11"
    script = executable(tmp_path / "v" / "bin" / "sglang", f"#!{python} -I\nimport sglang\n")
    assert interpreter(f"{script} serve --port 1") == str(python)
    assert interpreter(f"/bin/bash -c exec {script} serve") == str(python)


def test_a_first_line_too_long_for_the_kernel_is_followed_too(tmp_path: Path) -> None:
    script = executable(
        tmp_path / "sglang", "#!/bin/sh\n'''exec' \"/long path/bin/python\" \"$0\" \"$@\"\n' '''\n"
    )
    assert interpreter(f"{script} serve") == "/long path/bin/python"


def test_env_in_a_first_line_looks_on_the_units_own_path(tmp_path: Path) -> None:
    python = executable(tmp_path / "v" / "bin" / "python3", "")
    script = executable(tmp_path / "serve", "#!/usr/bin/env -S python3 -u\n")
    assert interpreter(f"{script}", {"PATH": f"/nowhere:{python.parent}"}) == str(python)
    assert interpreter(f"/usr/bin/env PATH={python.parent}:/bin python3 x.py") == str(python)
    assert interpreter(f"{script}", {"PATH": "/nowhere"}) == "<python3 is not on the unit's PATH>"


def test_a_shell_script_is_read_for_the_one_interpreter_in_it(tmp_path: Path) -> None:
    script = executable(
        tmp_path / "run.sh",
        '#!/bin/bash\n# not /opt/old/bin/python\nsource /opt/v/bin/activate\nexec sglang serve "$@"\n',
    )
    assert interpreter(f"{script} --port 1") == "/opt/v/bin/python"
    assert interpreter(f"/bin/bash -x {script} --port 1") == "/opt/v/bin/python"


def test_a_script_that_is_not_there_or_no_script_is_said(tmp_path: Path) -> None:
    binary = tmp_path / "tool"
    binary.write_bytes(b"\x7fELF\x02\x01\x01\0\xff\xfe")
    assert interpreter(f"{binary} x") == f"<not a Python program: {binary}>"
    assert interpreter(f"{tmp_path}/gone x") == f"<{tmp_path}/gone is not there>"
    assert interpreter(f"/bin/bash {tmp_path}/gone.sh") == f"<{tmp_path}/gone.sh is not there>"
    assert interpreter(f"{tmp_path} x").startswith(f"<{tmp_path}: ")


def test_scripts_that_start_each_other_end_somewhere(tmp_path: Path) -> None:
    script = tmp_path / "loop"
    executable(script, f"#!{script}\n")
    assert interpreter(str(script)).startswith("<")


PORTS = [
    ("python -m sglang.launch_server --port 30001", 30001),
    ("python -m sglang.launch_server --port=30002 --host 0.0.0.0", 30002),
    ("python -m sglang.launch_server --port 1 --port 30003", 30003),
    ("/opt/v/bin/sglang serve -p 30004", 30004),
    ("/bin/bash -lc exec sglang serve --port '30005'", 30005),
    ("python -m sglang.launch_server --model-path x", 30000),
    ("/opt/v/bin/sglang serve", 30000),
    ("python /srv/sglang/launch_server.py", 30000),
    ("python -m sglang.launch_server --port ${PORT}", 30006),
    ("python -m sglang.launch_server --port $PORT", 30006),
]


@pytest.mark.parametrize(("command", "port"), PORTS)
def test_the_port_is_the_one_that_the_server_will_take(command: str, port: int) -> None:
    assert find_port(command.split(), {"PORT": "30006"}) == port


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        ("python ddtree.py", "the command names no port"),
        ("mkdir -p /x", "the command names no port"),
        ("docker run -p 8080:30000 x", "the command names no port"),
        ("python x.py --port $SECRET", "the port comes from the variable SECRET"),
        ("python x.py --port 99999999", "not a port: 99999999"),
        ("python x.py --port", "the command names no port"),
    ],
)
def test_without_a_port_there_is_a_reason(command: str, detail: str) -> None:
    told = find_port(command.split(), {})
    assert isinstance(told, dict)
    assert told["detail"] == detail


def test_an_environment_is_read_with_its_quotes() -> None:
    assert parse_environment('A=1 "B=two words" "C=x;y"') == {"A": "1", "B": "two words", "C": "x;y"}
    assert parse_environment('"never closed') == {}
    assert parse_environment("") == {}
