"""Secrets in the forms that operators really use, and the knobs of a server that must stay readable."""

from __future__ import annotations

import shlex
import time

import pytest

from dflash_console.agent.redact import LIMIT, is_secret_name, redact, redact_text

S = "Zk9hunter2Qx"
"""The secret of all the lines below; whatever comes out must not hold it."""

LINES = [
    f"python -m sglang.launch_server --api-key {S} --port 30000",
    f"python -m sglang.launch_server --admin-api-key={S}",
    f"vllm serve model --api-key {S} {S}b --port 8000",
    f"sglang serve --ssl-keyfile /k.pem --ssl-keyfile-password {S}",
    f"text-generation-launcher --hf-token {S}",
    f"program --auth-token {S} --access_token={S} --client-secret {S} --db.password={S}",
    f"program -password {S}",
    f"program --basicAuth {S} --proxy-pass {S} --cookie {S}",
    f"program --secret-key={S} --privateKey {S} --signing-key {S} --aws-secret-access-key {S}",
    f"env HF_TOKEN={S} HUGGING_FACE_HUB_TOKEN={S} python serve.py",
    f"OPENAI_API_KEY={S} WANDB_API_KEY={S} AWS_SECRET_ACCESS_KEY={S} AWS_SESSION_TOKEN={S} ./run",
    f"PGPASSWORD={S} MYSQL_PWD={S} GITHUB_PAT={S} SGLANG_ADMIN_KEY={S} psql",
    f"docker run -e HF_TOKEN={S} --env API_KEY={S} --env=PASSWORD={S} -eTOKEN={S} image",
    f"podman login -u me -p x --password {S} registry",
    f"curl -u operator:{S} http://host/",
    f"curl --user operator:{S} http://host/",
    f"curl http://operator:{S}@host:30000/health",
    f"git clone https://{S}@github.com/org/repo.git",
    f"celery -b redis://:{S}/{S}@cache:6379/0",
    f"program --db postgresql+psycopg://me:{S}@db/x?sslmode=on",
    f"curl https://host/generate?api_key={S}&n=1",
    f"curl https://host/generate?n=1&token={S}",
    f"curl -H 'Authorization: Bearer {S}' host",
    f"curl -H 'Authorization: Basic {S}==' host",
    f"curl -H 'authorization:{S} {S}' host",
    f"curl -H 'X-API-Key: {S}' host",
    f"""curl -d '{{"api_key": "{S} {S}", "n": 1}}' host""",
    f"""curl -d '{{"auth": {{"password":"{S}"}}}}' host""",
    f"""program --config '{{\\"token\\": \\"{S} {S}\\", \\"n\\": 1}}'""",
    f"""python -c 'import os; os.environ["HF_TOKEN"] = "{S}"; login(token="{S}")'""",
    f"sh -c 'export HF_TOKEN={S}; exec python -m sglang.launch_server --api-key {S} --port 1'",
    f"""bash -lc "TOKEN='{S} {S}' python serve.py" """,
    f"ssh host 'program --password \"{S} {S}\" --port 1'",
    f"program --password '{S}",
    f"program --api-key -{S}",
    "program hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "program sk-proj-abcdefghijklmnop sk-abcdef",
    "program ghp_abcdefghijklmnopqrstuvwxyz0123456789 github_pat_11ABCDEFG0abcdefghijkl",
    "program glpat-abcdefghij0123456789",
    "program xoxb-123456789012-abcdef nvapi-abcdefghijklmnopqrstuvwxyz AKIAIOSFODNN7EXAMPLE",
    "program eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdef",
]
TRACES = ["abcdef", "AbCdEf", "AKIA", "eyJ", S]


def words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


@pytest.mark.parametrize("line", LINES)
def test_no_secret_is_left_in_a_command_line(line: str) -> None:
    shown = redact(words(line))
    assert not [trace for trace in TRACES if trace in shown], shown
    assert "***" in shown
    assert shown.startswith(line.split()[0].partition("=")[0])


@pytest.mark.parametrize("line", LINES)
def test_no_secret_is_left_in_the_same_line_as_one_text(line: str) -> None:
    for text in (redact_text(line), redact([line]), redact(["sh", "-c", line])):
        assert not [trace for trace in TRACES if trace in text], text
        assert "***" in text


@pytest.mark.parametrize(
    "line",
    [
        "python -m sglang.launch_server --model-path /root/models/Qwen3.6-27B --port 30000 --tp 2",
        "python serve.py --speculative-num-draft-tokens 16 --max-total-tokens 131072 --max-tokens=4",
        "python serve.py --tokenizer-path /dev/shm/Qwen3.6-27B --tokenizer-mode auto --skip-tokenizer-init",
        "python serve.py --eos-token-id 151645 --mask-token <|MASK|> --max-new-token=512 --token-budget 4096",
        "python serve.py --api-key-file /run/secrets/key --token-path /x --ssl-keyfile /k.pem",
        "python serve.py --enable-auth --no-password --port 1",
        "env CUDA_VISIBLE_DEVICES=0,1 PWD=/root OLDPWD=/ SGLANG_ALLOW_OVERWRITE_CONTEXT_LEN=1 python x",
        "env TOKENIZERS_PARALLELISM=false SGLANG_MAX_NEW_TOKENS=5 SORT_KEY=name KEYBOARD=us MONKEY=1 x",
        "docker run --user 1000:1000 -u root image",
        "curl http://host:30000/v1/models http://[::1]:30000/a@b",
        "ssh -o BatchMode=yes me@host uptime",
        "/usr/bin/task-runner-long disk-usage hf_transformers hf_hub risk-free-x",
        "sglang::scheduler_TP0",
        'python -m x --model-override {"rope_scaling":{"factor":4.0}}',
        "git checkout passport secretary",
    ],
)
def test_what_is_no_secret_stays_readable(line: str) -> None:
    assert redact(line.split()) == line
    assert redact_text(line) == line


def test_only_the_secret_is_hidden_not_what_stands_beside_it() -> None:
    assert redact(["x", "--api-key", S, "--port", "1"]) == "x --api-key *** --port 1"
    assert redact(["x", "--api-key", "--port", "1"]) == "x --api-key --port 1"
    assert redact(["x", f"--api-key={S}", "model"]) == "x --api-key=*** model"
    assert redact(["x", f"http://me:{S}@host:1/p", "y"]) == "x http://***@host:1/p y"
    assert redact(["curl", f"http://h/?a=1&token={S}&b=2"]) == "curl http://h/?a=1&token=***&b=2"
    assert redact(["sh", "-c", f"exec env HF_TOKEN={S} x -p 1"]) == "sh -c 'exec env HF_TOKEN=*** x -p 1'"


def test_words_can_be_told_apart() -> None:
    assert redact(["a", "", "b  c\nd", "e"]) == "a '' 'b c d' e"
    assert redact([]) == ""


def test_a_long_line_is_cut_after_the_secrets_are_gone() -> None:
    shown = redact(["x", "--api-key", S * 1000, "--note", "n" * 1000])
    assert len(shown) == LIMIT
    assert shown.startswith("x --api-key *** --note nnn")
    assert shown.endswith("…")
    # The cut of what is looked at must not leave half a secret that no rule knows.
    for length in range(4050, 4100):
        shown = redact(["HF_TOKEN=" + "a" * length + " " + f"password={S}", "x"])
        assert not any(part in shown for part in (S, S[:6]))
        shown = redact(["a=" + "https://me:" + "b" * length + "@host/" + " " + f"password={S}", "x"])
        assert not any(part in shown for part in (S, S[:6], "bbbb"))
    assert len(redact_text("word " * 10_000)) == LIMIT


@pytest.mark.parametrize(
    "piece", ["a=", '"', "\\", '\\"', "--x ", "a:", "://", "://:", "@", "hf_", "eyJ", "='", "token=\\'", "é "]
)
def test_hostile_text_costs_no_time(piece: str) -> None:
    longest = (piece * 4096)[:4090]
    begin = time.process_time()
    redact([longest] * 10 + ["--token", longest])
    redact_text("token=" + longest + " " + longest)
    assert time.process_time() - begin < 1.0


@pytest.mark.parametrize(
    "name",
    ["--api-key", "api_key", "apiKey", "HF_TOKEN", "hfToken", "PASSWORD", "x-api-key", "client_secret"],
)
def test_secret_names_in_every_spelling(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["--port", "tokenizer", "max_tokens", "PWD", "key_name", "monkey", "", "--", "passport"]
)
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)
