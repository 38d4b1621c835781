"""Prometheus metrics of a reward service."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from vtune.verifiers import VERIFIERS

BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Histogram buckets in seconds; ours: from comparing a letter to a worker that hangs."""


class Counts:
    """Counts by verifier; names that are not those of verifiers share the label `unknown`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._scored = Counter(
            "vtune_reward_trajectories", "Trajectories scored.", ["verifier"], registry=self._registry
        )
        self._errors = Counter(
            "vtune_reward_errors",
            "Trajectories without a total, by HTTP status: 422 for what was sent, 500 for a failure here.",
            ["verifier", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "vtune_reward_seconds",
            "Seconds from the arrival of a trajectory to its scores.",
            ["verifier"],
            buckets=BUCKETS,
            registry=self._registry,
        )

    def add(self, verifier: str, status: int, seconds: float) -> None:
        """Count one trajectory, by the HTTP status of its answer."""
        name = verifier if verifier in VERIFIERS else "unknown"
        self._seconds.labels(name).observe(seconds)
        if status == 200:
            self._scored.labels(name).inc()
        else:
            self._errors.labels(name, str(status)).inc()

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(self._registry)
