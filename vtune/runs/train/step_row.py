"""The metrics of a step as a whole, beside the numbers of each source."""

import resource
import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from vtune.runs.train.dynamic_sampling import StepGroups
from vtune.schema.trajectory import Trajectory
from vtune.update.stats import StepStats

if TYPE_CHECKING:
    import torch

_OF_UPDATES = ("loss", "grad_norm", "learning_rate")
"""Numbers of each update; the step records their mean."""
_OF_TOKENS = ("entropy", "kl", "clip_share", "truncated_share", "mismatch_mean", "mismatch_kl")
"""Means over an update's tokens; the step records the mean over all of its tokens."""


def groups_row(shares: Sequence[StepGroups], *, asked: int, resampled: bool) -> dict[str, float]:
    """The results of dynamic sampling over all processes; `asked` is the number of groups wanted."""
    groups, zero_variance = sum(one.groups for one in shares), sum(one.zero_variance for one in shares)
    row: dict[str, float] = {"groups_zero_variance": zero_variance / groups}
    if resampled:
        row["groups_replaced"] = groups - asked
    return row


def update_row(stats: Sequence[StepStats]) -> dict[str, float]:
    """The numbers of a step's updates combined; values that were not measured are left out.

    `mismatch` is the largest difference in any update; a mean over tokens weighs every token equally, however
    tokens are distributed over updates.
    """
    row: dict[str, float] = {"skipped": sum(one.skipped for one in stats)}
    done = [one for one in stats if not one.skipped]
    for name in (*_OF_UPDATES, *_OF_TOKENS):
        known = [(value, one.tokens) for one in done if (value := getattr(one, name)) is not None]
        if known:
            values, tokens = zip(*known, strict=True)
            row[name] = fmean(values, tokens if name in _OF_TOKENS else None)
    largest = [one.mismatch for one in done if one.mismatch is not None]
    if largest:
        row["mismatch"] = max(largest)
    for group in dict.fromkeys(group for one in done for group in one.grad_norms):
        row[f"grad_norm_{group}"] = fmean(one.grad_norms[group] for one in done if group in one.grad_norms)
    return row


class Clock:
    """Measures the seconds of each phase of a step."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._laps: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """End a phase; the next one starts now."""
        now = time.monotonic()
        self._laps[phase] = now - self._last
        self._last = now

    def leave_out(self, seconds: float) -> None:
        """Exclude seconds that were spent on something else since the last phase ended."""
        self._began += seconds
        self._last += seconds

    def row(self, stats: Sequence[StepStats], *, processes: int, peak: float | None) -> dict[str, float]:
        """Seconds in total and per phase, trained tokens per second, and MFU.

        Args:
            stats: Statistics of the step's updates.
            processes: Number of processes in the run.
            peak: Peak operations per second of all GPUs; None if it is not known; MFU is then left out.
        """
        seconds = time.monotonic() - self._began
        tokens = sum(one.tokens for one in stats)
        phases = {f"seconds_{phase}": value for phase, value in self._laps.items()}
        return {
            "seconds": seconds,
            **phases,
            **speed_row(stats, tokens / seconds, self._laps["update"], processes=processes, peak=peak),
        }


def speed_row(
    stats: Sequence[StepStats],
    tokens_per_second: float,
    seconds: float,
    *,
    processes: int,
    peak: float | None,
) -> dict[str, float]:
    """Trained tokens per second, in total and per process, and MFU over `seconds` of updates."""
    row = {
        "tokens_per_second": tokens_per_second,
        "tokens_per_second_per_gpu": tokens_per_second / processes,
    }
    return row if peak is None else row | {"mfu": sum(one.flops for one in stats) / (seconds * peak)}


def idle_share(row: Mapping[str, float]) -> float:
    """The share of a step in which this process neither generated nor trained but waited for tools or scores.

    Valid only if steps do not overlap: otherwise the next one is generated during these waits.
    """
    return (row["seconds_sandbox"] + row["seconds_reward"]) / row["seconds"]


def memory_gib(device: "torch.device") -> float:
    """Peak memory of this process in GiB: on its GPU since the last call, else of RAM since it started."""
    if device.type == "cuda":
        import torch

        used = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return used / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def staleness(drawn: Sequence[Trajectory], step: int) -> float:
    """How many steps behind the sampling weights were, as a mean over sampled tokens; 0 without tokens."""
    versions = [version for t in drawn for version in t.weight_versions if version is not None]
    return sum(step - version for version in versions) / len(versions) if versions else 0.0


def interrupted_row(drawn: Sequence[Trajectory], step: int) -> dict[str, float]:
    """How many steps behind the oldest sampling weights were, and the share of conversations in which weights
    changed.
    """
    versions = [{version for version in t.weight_versions if version is not None} for t in drawn]
    return {
        "staleness_max": max((step - min(found) for found in versions if found), default=0),
        "interrupted_share": fmean(len(found) > 1 for found in versions) if versions else 0.0,
    }
