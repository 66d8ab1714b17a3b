"""What the server counts, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edgekit.runtime.events import GenerationStats, SpeculationStats
from edgekit.runtime.serve.engine import Engine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self, engine: Engine) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "edgekit_requests", "Requests answered.", ["path", "status"], registry=registry
        )
        self._tokens = Counter(
            "edgekit_tokens",
            "Tokens: of prompts, of these not computed again, and of answers.",
            ["kind"],
            registry=registry,
        )
        self._refused = Counter(
            "edgekit_refused", "Requests for which there was no room.", registry=registry
        )
        self._first = Histogram(
            "edgekit_time_to_first_token_seconds",
            "From a request to its first token.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._between = Histogram(
            "edgekit_inter_token_seconds",
            "From one token to the next.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._drafts = Counter(
            "edgekit_drafted_tokens",
            "Drafted tokens by position: offered, and of these accepted.",
            ["drafter", "kind", "position"],
            registry=registry,
        )
        self._rounds = Counter(
            "edgekit_decode_steps",
            "Steps of decoding with a drafter: verify steps, and plain ones.",
            ["drafter", "kind"],
            registry=registry,
        )
        self._spent = Counter(
            "edgekit_decode_seconds",
            "Where the time of decoding with a drafter went; verify includes plain steps.",
            ["drafter", "part"],
            registry=registry,
        )
        registry.register(_EngineCollector(engine))

    def request(self, path: str, status: int) -> None:
        """A request was answered."""
        self._requests.labels(path, str(status)).inc()

    def refused(self) -> None:
        """There was no room for a request."""
        self._refused.inc()

    def token(self, seconds: float, *, first: bool) -> None:
        """A token came."""
        (self._first if first else self._between).observe(seconds)

    def job(self, stats: GenerationStats) -> None:
        """A generation ended."""
        self._tokens.labels("prompt").inc(stats.prompt_tokens)
        self._tokens.labels("cached").inc(stats.cached_tokens)
        self._tokens.labels("answer").inc(stats.completion_tokens)
        if stats.speculation is not None:
            self._speculation(stats.speculation)

    def _speculation(self, stats: SpeculationStats) -> None:
        name = stats.drafter
        for kind, counts in (("offered", stats.offered), ("accepted", stats.accepted)):
            for i, count in enumerate(counts, 1):
                self._drafts.labels(name, kind, str(i)).inc(count)
        self._rounds.labels(name, "verify").inc(stats.rounds)
        self._rounds.labels(name, "plain").inc(stats.plain_steps)
        self._spent.labels(name, "draft").inc(stats.draft_seconds)
        self._spent.labels(name, "verify").inc(stats.verify_seconds)
        self._spent.labels(name, "commit").inc(stats.commit_seconds)

    def text(self) -> bytes:
        """Everything, in Prometheus's text format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """The engine's state, read when it is asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        stats, prefixes = self._engine.stats(), self._engine.model.prefixes.stats()
        for name, text, value in (
            ("slots", "Sequences that can run at once.", stats.slots),
            ("slots_busy", "Sequences that run.", stats.busy),
            ("queue_length", "Requests that wait.", stats.waiting),
            ("prefix_entries", "Computed beginnings that are kept.", prefixes.entries),
            ("prefix_bytes", "What they take.", prefixes.nbytes),
            ("prefix_budget_bytes", "What they may take.", prefixes.budget),
            ("prefix_evicted", "Beginnings given up so far.", prefixes.evicted),
        ):
            yield GaugeMetricFamily(f"edgekit_{name}", text, value=value)
