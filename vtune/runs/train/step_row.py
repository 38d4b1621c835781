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
"""Numbers that each update has: a step has their mean."""
_OF_TOKENS = ("entropy", "kl", "clip_share", "truncated_share", "mismatch_mean", "mismatch_kl")
"""Means over the tokens of an update: a step has the mean over all of its tokens."""


def groups_row(shares: Sequence[StepGroups], *, asked: int, resampled: bool) -> dict[str, float]:
    """What dynamic sampling met, over all processes; `asked` groups were wanted."""
    groups, zero_variance = sum(one.groups for one in shares), sum(one.zero_variance for one in shares)
    row: dict[str, float] = {"groups_zero_variance": zero_variance / groups}
    if resampled:
        row["groups_replaced"] = groups - asked
    return row


def update_row(stats: Sequence[StepStats]) -> dict[str, float]:
    """The numbers of a step's updates together; what was not measured is left out.

    `mismatch`, the largest difference of an update, is the largest of the step; a mean over tokens weighs
    every token alike, however the updates share them.
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
    """Seconds of each phase of a step."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._laps: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """End a phase."""
        now = time.monotonic()
        self._laps[phase] = now - self._last
        self._last = now

    def leave_out(self, seconds: float) -> None:
        """These were spent on something else since the last phase ended."""
        self._began += seconds
        self._last += seconds

    def row(self, stats: Sequence[StepStats], *, processes: int, peak: float | None) -> dict[str, float]:
        """Seconds of all and of each phase, the trained tokens of each second, and MFU.

        Args:
            stats: Of the step's updates.
            processes: Of the run.
            peak: Operations a second of all GPUs; None where it is not known, and MFU neither.
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
    """Trained tokens of each second, of all and of each process, and MFU over `seconds` of updates."""
    row = {
        "tokens_per_second": tokens_per_second,
        "tokens_per_second_per_gpu": tokens_per_second / processes,
    }
    return row if peak is None else row | {"mfu": sum(one.flops for one in stats) / (seconds * peak)}


def idle_share(row: Mapping[str, float]) -> float:
    """The share of a step in which this process neither drew nor trained: it waited for tools, or for scores.

    Only where steps do not overlap: else the next one is drawn while this one waits.
    """
    return (row["seconds_sandbox"] + row["seconds_reward"]) / row["seconds"]


def memory_gib(device: "torch.device") -> float:
    """The peak of this process, in GiB: on its GPU since this was last asked, else of RAM so far."""
    if device.type == "cuda":
        import torch

        used = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return used / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def staleness(drawn: Sequence[Trajectory], step: int) -> float:
    """Steps by which the weights that drew were behind, a mean over sampled tokens; 0 without any."""
    versions = [version for t in drawn for version in t.weight_versions if version is not None]
    return sum(step - version for version in versions) / len(versions) if versions else 0.0


def interrupted_row(drawn: Sequence[Trajectory], step: int) -> dict[str, float]:
    """How far behind the oldest weights were that drew a token, and the share of conversations that new
    weights came under.
    """
    versions = [{version for version in t.weight_versions if version is not None} for t in drawn]
    return {
        "staleness_max": max((step - min(found) for found in versions if found), default=0),
        "interrupted_share": fmean(len(found) > 1 for found in versions) if versions else 0.0,
    }
