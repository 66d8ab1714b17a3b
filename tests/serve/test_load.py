"""Several clients that behave badly: nobody sees another's text, every refusal is well-formed, and
the server neither crashes nor grows."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from tests.serve.conftest import Live, running

CHAT = "/v1/chat/completions"
CLIENTS = 4
ASKED = [
    "Hello",
    "What is 3 plus 4?",
    "What is the capital of France?",
    "Tell me about water.",
    "What is a byte?",
    "Name a fruit.",
    "What colour is the sky?",
    "Count to five.",
]
BROKEN = (
    b"",
    b"{",
    b"[" * 200_000,
    b'{"model": "nano", "messages": [{"role": "user", "content": "' + b"x" * 10_000_000 + b'"}]}',
    b'{"model": "nano", "messages": [], "temperature": NaN}',
    b'{"model": "nano", "messages": [{"role": "user", "content": "hi"}], "nothing": 1}',
    b"\xff\xfe\x00",
)


def body(i: int, *, stream: bool, tokens: int = 48) -> dict[str, object]:
    """A request whose greedy answer is known; every other one thinks."""
    asked = {"role": "user", "content": ASKED[i % len(ASKED)]}
    return {
        "model": "nano",
        "messages": [{"role": "system", "content": f"You are helper {i % 3}."}, asked],
        "temperature": 0,
        "max_tokens": tokens,
        "stream": stream,
        "chat_template_kwargs": {"enable_thinking": i % 2 == 0},
    }


def text_of(message: dict[str, str | None]) -> str:
    return (message.get("reasoning_content") or "") + "|" + (message.get("content") or "")


class Client(threading.Thread):
    """One user, acting at random until the time is over. `faults` says what went wrong."""

    def __init__(self, address: str, seed: int, until: float, known: list[str]) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._http = httpx2.Client(base_url=address, timeout=120)
        self._until, self._known = until, known
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        acts = [self.whole, self.streamed, self.streamed, self.leaves, self.slowly, self.broken]
        try:
            while time.monotonic() < self._until:
                act = self._random.choice(acts)
                act(self._random.randrange(len(self._known)))
                self.done[act.__name__] += 1
        except Exception as error:
            self.faults.append(repr(error))
        finally:
            self._http.close()

    def _expect(self, i: int, text: str) -> None:
        if text != self._known[i]:
            self.faults.append(f"{i}: {text!r} is not {self._known[i]!r}")

    def whole(self, i: int) -> None:
        answer = self._http.post(CHAT, json=body(i, stream=False)).json()
        self._expect(i, text_of(answer["choices"][0]["message"]))

    def streamed(self, i: int, pause: float = 0.0) -> None:
        texts = {"reasoning_content": "", "content": ""}
        with self._http.stream("POST", CHAT, json=body(i, stream=True)) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    delta = json.loads(line[6:])["choices"][0]["delta"]
                    for name in texts:
                        texts[name] += delta.get(name) or ""
                    time.sleep(pause)
        self._expect(i, text_of(texts))

    def slowly(self, i: int) -> None:
        self.streamed(i, pause=0.02)

    def leaves(self, i: int) -> None:
        with self._http.stream("POST", CHAT, json=body(i, stream=True)) as response:
            for n, _ in enumerate(response.iter_lines()):
                if n >= self._random.randrange(20):
                    return

    def broken(self, i: int) -> None:
        content = self._random.choice(BROKEN)
        headers = {"content-type": "application/json"}
        response = self._http.post(CHAT, content=content, headers=headers)
        error = response.json().get("error", {})
        if not 400 <= response.status_code < 500 or set(error) != {
            "message",
            "type",
            "param",
            "code",
        }:
            self.faults.append(f"{response.status_code} {response.text[:200]}")


def rss(pid: int) -> int:
    """Resident bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def load(server: Live, seconds: float, seed: int) -> Counter[str]:
    """Runs the clients; what they did, if nothing went wrong."""
    count = 3 * len(ASKED) * 2
    with httpx2.Client(base_url=server.address, timeout=120) as alone:
        answers = [alone.post(CHAT, json=body(i, stream=False)).json() for i in range(count)]
    known = [text_of(answer["choices"][0]["message"]) for answer in answers]
    until = time.monotonic() + seconds
    clients = [Client(server.address, seed + i, until, known) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert [fault for client in clients for fault in client.faults] == []
    return sum((client.done for client in clients), Counter())


async def burst(address: str, count: int) -> Counter[int]:
    """So many requests at once; their statuses."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=address, timeout=300, limits=limits) as http:

        async def one(i: int) -> int:
            response = await http.post(CHAT, json=body(i, stream=False, tokens=1))
            if response.status_code == 429:
                assert int(response.headers["retry-after"]) >= 1
                assert response.json()["error"]["code"] == "queue_full"
            return response.status_code

        return Counter(await asyncio.gather(*(one(i) for i in range(count))))


def test_clients_that_behave_badly(nano: Path, tmp_path: Path) -> None:
    with running(nano, tmp_path, "--slots", "4", "--queue", "8") as server:
        done = load(server, 8, seed=1)
        assert min(done.values()) >= 1
        statuses = asyncio.run(burst(server.address, 60))
        assert set(statuses) <= {200, 429}
        assert sum(statuses.values()) == 60
        with httpx2.Client(base_url=server.address) as http:
            state = http.get("/ready").json()
        assert (state["busy"], state["waiting"]) == (0, 0)


@pytest.mark.slow
def test_ten_minutes_of_clients_that_behave_badly(nano: Path, tmp_path: Path) -> None:
    args = ("--slots", "4", "--queue", "1000")
    with running(nano, tmp_path, *args) as server:
        load(server, 120, seed=1)
        asyncio.run(burst(server.address, 1000))
        before = rss(server.process.pid)
        done = load(server, 600, seed=10)
        statuses = asyncio.run(burst(server.address, 1000))
        assert statuses == {200: 1000}
        after = rss(server.process.pid)
        print(f"{dict(done)}; resident {before} before and {after} after")
        assert after <= 1.02 * before
