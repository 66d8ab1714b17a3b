"""What surrounds the endpoints: keys, refusals, faults of clients, and how the server ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.serve.conftest import Live, running

CHAT = "/v1/chat/completions"
HELLO = {"model": "nano", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0}
KEY = {"authorization": "Bearer secret"}


@pytest.fixture
def http(live: Live) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=live.address, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def locked(nano: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A server with a key, one slot and room for one request to wait."""
    folder = tmp_path_factory.mktemp("locked")
    args = ("--api-key", "secret", "--queue", "1", "--name", "my/model")
    with (
        running(nano, folder, *args) as server,
        httpx2.Client(base_url=server.address, timeout=60) as client,
    ):
        yield client


def is_openais_error(response: httpx2.Response) -> bool:
    body = response.json()
    return set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}


def endless(tokens: int = 3000) -> dict[str, object]:
    """A request whose answer does not end by itself: end-of-answer tokens are banned."""
    bias = {str(token): -100 for token in (2, 11)}
    return {**HELLO, "max_tokens": tokens, "logit_bias": bias, "stream": True}


def busy(http: httpx2.Client) -> dict[str, int]:
    return http.get("/ready").json()


def wait_until(http: httpx2.Client, slots: int, waiting: int = 0) -> None:
    for _ in range(400):
        state = busy(http)
        if (state["busy"], state["waiting"]) == (slots, waiting):
            return
        time.sleep(0.02)
    raise AssertionError(state)


def test_health_ready_and_metrics(http: httpx2.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    assert busy(http)["slots"] == 2
    before = metric(http, 'edgekit_tokens_total{kind="answer"}')
    used = http.post(CHAT, json=HELLO).json()["usage"]["completion_tokens"]
    assert metric(http, 'edgekit_tokens_total{kind="answer"}') == before + used
    assert metric(http, "edgekit_time_to_first_token_seconds_count") > 0
    path = f'edgekit_requests_total{{path="{CHAT}",status="200"}}'
    assert metric(http, path) > 0


def metric(http: httpx2.Client, name: str) -> float:
    lines = http.get("/metrics").text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", CHAT, 405),
        ("POST", "/health", 405),
        ("PUT", "/ready", 405),
    ],
)
def test_what_is_not_there(http: httpx2.Client, method: str, path: str, status: int) -> None:
    response = http.request(method, path)
    assert response.status_code == status
    assert is_openais_error(response)


def test_the_page_needs_nothing_from_elsewhere(http: httpx2.Client) -> None:
    response = http.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "connect-src 'self'" in response.headers["content-security-policy"]
    for outside in ("http://", "https://", "//cdn", "@import", "innerHTML"):
        assert outside not in response.text


BODIES = {
    "empty": (b"", 400),
    "no JSON": (b"{", 400),
    "not an object": (b"[1]", 400),
    "null": (b"null", 400),
    "not UTF-8": (b'{"model": "\xff\xfe"}', 400),
    "NaN": (b'{"model": "nano", "messages": [], "temperature": NaN}', 400),
    "deep": (b'{"model": ' + b"[" * 100_000, 400),
    "deep inside": (
        b'{"model":"nano","messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"a":'
        + b"[" * 5000
        + b"]" * 5000
        + b"}}",
        400,
    ),
    "10 MB": (b'{"model": "' + b"x" * 10_000_000 + b'"}', 413),
    "a lone surrogate": (
        b'{"model":"nano","max_tokens":2,"messages":[{"role":"user","content":"\\ud800"}]}',
        400,
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_none(http: httpx2.Client, name: str) -> None:
    body, status = BODIES[name]
    response = http.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert is_openais_error(response)
    assert len(response.content) < 1000


def test_a_web_page_cannot_post_as_a_form(http: httpx2.Client) -> None:
    response = http.post(CHAT, content=json.dumps(HELLO), headers={"content-type": "text/plain"})
    assert response.status_code == 415


def test_another_host_name_is_not_answered(http: httpx2.Client) -> None:
    response = http.get("/v1/models", headers={"host": "evil.example:8080"})
    assert response.status_code == 403
    assert is_openais_error(response)


def test_garbage_on_the_wire(live: Live, http: httpx2.Client) -> None:
    host, port = live.address.removeprefix("http://").split(":")
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\x00" * 64 + b"\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            sock.sendall(garbage + b"\r\n\r\n")
            answer = sock.recv(4096)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}, {"x-api-key": "é"}],
)
def test_without_the_key_there_is_nothing(locked: httpx2.Client, headers: dict[str, str]) -> None:
    raw = {name: value.encode() for name, value in headers.items()}
    for path in ("/v1/models", "/metrics", CHAT, "/anything"):
        response = locked.get(path, headers=raw)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert is_openais_error(response)
        assert "model" not in response.text
    assert locked.get("/health").status_code == 200


def test_the_key_opens(locked: httpx2.Client) -> None:
    assert locked.get("/v1/models", headers=KEY).json()["data"][0]["id"] == "my/model"
    assert locked.get("/v1/models/my/model", headers={"x-api-key": "secret"}).status_code == 200
    assert locked.get("/health", headers={"host": "anything"}).status_code == 200


def test_a_full_queue_says_when_to_come_back(locked: httpx2.Client) -> None:
    long = {**endless(), "model": "my/model"}
    with locked.stream("POST", CHAT, json=long, headers=KEY) as running_one:
        assert running_one.status_code == 200
        wait_until(locked, 1)
        with locked.stream("POST", CHAT, json=long, headers=KEY):
            wait_until(locked, 1, 1)
            refused = locked.post(CHAT, json=long, headers=KEY)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert is_openais_error(refused)
            assert refused.json()["error"]["type"] == "rate_limit_error"
    wait_until(locked, 0)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_slot(http: httpx2.Client, stream: bool) -> None:
    wait_until(http, 0)
    if stream:
        with http.stream("POST", CHAT, json=endless()) as response:
            lines = response.iter_lines()  # which closes the connection when it is dropped
            next(lines)
            wait_until(http, 1)
    else:
        body = {**endless(), "stream": False}
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(http.base_url.join(CHAT), json=body, timeout=0.3)
    wait_until(http, 0)


def test_a_request_takes_no_longer_than_it_may(nano: Path, tmp_path: Path) -> None:
    with (
        running(nano, tmp_path, "--timeout", "1") as server,
        httpx2.Client(base_url=server.address, timeout=60) as client,
    ):
        response = client.post(CHAT, json={**endless(4000), "stream": False})
        assert response.status_code == 504
        assert is_openais_error(response)
        with client.stream("POST", CHAT, json=endless(4000)) as streamed:
            *_, last = (line for line in streamed.iter_lines() if line)
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"


def test_sigterm_lets_answers_end_and_takes_no_more(nano: Path, tmp_path: Path) -> None:
    with running(nano, tmp_path) as server:
        lines: list[str] = []
        begun = threading.Event()

        def read() -> None:
            with httpx2.stream(
                "POST", f"{server.address}{CHAT}", json=endless(300), timeout=60
            ) as response:
                for line in response.iter_lines():
                    lines.append(line)
                    begun.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(20)
        server.process.send_signal(signal.SIGTERM)
        reader.join(30)
        assert server.process.wait(30) == 0
        assert lines[-2:] == ["data: [DONE]", ""] or lines[-1] == "data: [DONE]"
        finish = [line for line in lines if '"finish_reason":"length"' in line]
        assert len(finish) == 1
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{server.address}/health")


def cli(*args: str, code: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{code}\nimport sys\nfrom edgekit.cli import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *args], capture_output=True, text=True, timeout=60
    )


def test_without_the_packages_there_is_a_command(nano: Path) -> None:
    done = cli("serve", str(nano), code="import sys; sys.modules['uvicorn'] = None")
    assert done.returncode == 3
    assert "pip install 'edgekit-nemotron[serve]'" in done.stderr


def test_a_port_that_is_taken(nano: Path, live: Live) -> None:
    done = cli("serve", str(nano), "--port", live.address.rsplit(":", 1)[1])
    assert done.returncode == 2
    assert "cannot listen" in done.stderr


def test_an_open_door_is_warned_of(nano: Path, tmp_path: Path) -> None:
    with running(nano, tmp_path, "--host", "0.0.0.0") as server:
        assert "anybody who reaches 0.0.0.0" in server.errors.read_text()
    with running(nano, tmp_path, "--host", "0.0.0.0", "--api-key", "k") as server:
        assert server.errors.read_text() == ""


def test_running_a_chat_loads_nothing_of_the_server() -> None:
    code = (
        "import sys, edgekit.runtime.model, edgekit.runtime.conversation\n"
        "print(sorted({'starlette', 'uvicorn', 'llguidance', 'pydantic'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
