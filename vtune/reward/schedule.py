"""How tight a box has to be at each step of a run (V-Triune §3.2.1, appendices I and J)."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from statistics import fmean
from typing import Any

from vtune.errors import RunFailed
from vtune.reward.recipe import IouSchedule
from vtune.schema.trajectory import Trajectory


class Tightening:
    """The IoU thresholds over the course of a run, and their state for checkpoints.

    Args:
        iou: The recipe's schedule; None if no sample of the run needs one.
        steps: Number of steps in the whole run.
        saved: State from the checkpoint that the run resumes from; None for a new run.

    Raises:
        RunFailed: If the checkpoint lacks the state of an adaptive schedule.
    """

    def __init__(self, iou: IouSchedule | None, *, steps: int, saved: Mapping[str, Any] | None) -> None:
        self._iou = iou
        self._steps = steps
        self._reached = first_threshold(iou) if iou is not None else None
        if iou is None or iou.schedule != "adaptive" or saved is None:
            return
        self._reached = saved.get("iou")
        if self._reached not in iou.thresholds:
            raise RunFailed(
                f"the checkpoint has {self._reached} as its IoU threshold, which reward.iou does not have",
                fix="remove the checkpoint to resume from an older one, or start a new run",
            )

    @property
    def state(self) -> dict[str, float | None]:
        """The state to pass as `saved` on resuming."""
        return {"iou": self._reached}

    def at(self, step: int) -> tuple[float, ...]:
        """The thresholds of a step, for `Scorer.score`; empty without a schedule."""
        if self._iou is None:
            return ()
        return thresholds_at(self._iou, self._reached, step=step, steps=self._steps)

    def after(self, step: int, trajectories: Iterable[Trajectory]) -> dict[str, float]:
        """Record the scored trajectories of a step, from all processes.

        Returns:
            Values for the metrics: `iou_threshold` (the mean if there are several) and, if some replies had
            to give boxes, `iou_success` (see `success_rate`).
        """
        if self._iou is None:
            return {}
        thresholds = self.at(step)
        success = success_rate(trajectories, thresholds)
        self._reached = next_threshold(self._iou, self._reached, success)
        row = {"iou_threshold": fmean(thresholds)}
        return row if success is None else row | {"iou_success": success}


def first_threshold(iou: IouSchedule) -> float | None:
    """The first threshold of an adaptive schedule; None for the others, which depend only on the step."""
    return iou.thresholds[0] if iou.schedule == "adaptive" else None


def thresholds_at(iou: IouSchedule, reached: float | None, *, step: int, steps: int) -> tuple[float, ...]:
    """The thresholds at a step, counted from 0; more than one only if the score is their average.

    A stage that lasts until the share u of training applies to the steps below u · `steps`.

    Args:
        iou: The schedule.
        reached: Current threshold of an adaptive schedule (`first_threshold`, then `next_threshold`).
        step: Number of completed steps.
        steps: Number of steps in the whole run.
    """
    if iou.schedule == "adaptive":
        if reached is None:
            raise ValueError("an adaptive schedule has a place to stand")
        return (reached,)
    if iou.schedule == "staged":
        # Exactly as written in the recipe: in floats, 0.28 of 25 steps is more than 7.
        return (iou.thresholds[sum(step >= Fraction(str(share)) * steps for share in iou.until)],)
    return iou.thresholds


def next_threshold(iou: IouSchedule, reached: float | None, success: float | None) -> float | None:
    """The threshold of an adaptive schedule after a step (appendix I, eq. 6).

    Args:
        iou: The schedule.
        reached: Its threshold during the step.
        success: `success_rate` of the step; None (no sample had boxes) changes nothing.
    """
    if iou.schedule != "adaptive" or reached is None or iou.target is None or success is None:
        return reached
    at = iou.thresholds.index(reached) + (success > iou.target) - (success < iou.target)
    return iou.thresholds[min(max(at, 0), len(iou.thresholds) - 1)]


def success_rate(trajectories: Iterable[Trajectory], thresholds: Sequence[float]) -> float | None:
    """The share of scored replies with boxes whose IoU exceeds the threshold, or the mean over several.

    If a ground truth has several boxes, the mean IoU over them is used. None if no reply had to give
    boxes.

    Source: the batch success rate of V-Triune, appendix I.
    """
    rewards = [trajectory.reward for trajectory in trajectories]
    overlaps = [
        r.parts["iou"] for r in rewards if r is not None and r.accuracy is not None and "iou" in r.parts
    ]
    level = fmean(thresholds)
    return fmean(overlap > level for overlap in overlaps) if overlaps else None
