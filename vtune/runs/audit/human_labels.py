"""People's labels of audited trajectories, and how far verifiers and judges agree with them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vtune.metrics.agreement import agreement
from vtune.metrics.calibration import Judged, calibration
from vtune.metrics.resampling import SEED
from vtune.reward.recipe import RIGHT
from vtune.runs.audit.stored_audit import StoredAudit
from vtune.schema.labels import Judgement, Label, read_labels
from vtune.schema.trajectory import Trajectory
from vtune.view.place import Place

LOOKS = {True: "shown", False: "not shown", None: "not judged"}
"""The judge's verdict on a trajectory with calls: whether one of them shows the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A labelled trajectory."""

    label: Judgement
    verifier: str
    correct: bool | None
    """The verifier's verdict; None if the answer is unscored."""
    looked: bool
    """Whether its question needs a look and it has calls."""
    faithful: bool | None
    """The judge's verdict on its looks; None if it could not tell, or there was nothing to look at."""
    cluster: str = ""
    """As in `AuditRow`, like the target."""
    target: float | None = None


class HumanLabels:
    """Collects labelled trajectories from an audit that proceeds a portion at a time.

    Args:
        path: The audited folder or file; its labels are where `vtune view` puts them.

    Raises:
        DataError: If the label file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.file = Place(path, path.name, "trajectories").labels
        self._labels = read_labels(self.file)
        self._there = len(self._labels)
        self._found: list[Labelled] = []

    def take(self, portion: Sequence[StoredAudit]) -> None:
        """Take the next trajectories."""
        for one in portion:
            file, number = one.place
            label = self._labels.pop(f"{file.stem}/{number}", None)
            # If the file was rewritten since it was labelled, the label belongs to another trajectory.
            if label is not None and (label.sample_id, label.rollout) == _name(one.trajectory):
                self._found.append(_labelled(label, one))

    def result(self) -> dict[str, Any]:
        """The agreement of labels with verifiers and with the judge of looks; empty if there are no labels.

        `labels`, the file; `labelled`, the number of audited trajectories with a label; `not_found`, the
        number of other labels; `answers`, by verifier and in total, the agreement of its verdict (first) with
        right and wrong (second); `looks`, by the judge's verdict, the number of labels, of `judge erred` and
        of `box wrong`; `calibration` of the judge of looks by labels: its verdict counts as true where people
        saw it and did not choose `judge erred`.
        """
        if not self._there:
            return {}
        by_verifier = {"all": self._found} | {
            name: [one for one in self._found if one.verifier == name]
            for name in sorted({one.verifier for one in self._found})
        }
        looked = [one for one in self._found if one.looked]
        return {
            "labels": str(self.file),
            "labelled": len(self._found),
            "not_found": self._there - len(self._found),
            "answers": {name: _answers(found) for name, found in by_verifier.items()},
            "calibration": asdict(calibration(map(_judged, looked), seed=SEED)),
            "looks": {
                name: _looks([one for one in looked if one.faithful is said]) for said, name in LOOKS.items()
            },
        }


def _name(trajectory: Trajectory) -> tuple[str, int | None]:
    return trajectory.sample_id, trajectory.rollout


def _labelled(label: Label, one: StoredAudit) -> Labelled:
    assert label.label is not None  # `read_labels` leaves out retracted labels
    reward, row = one.trajectory.reward, one.audit
    accuracy = None if reward is None else reward.accuracy
    return Labelled(
        label=label.label,
        verifier=one.sample.verifier,
        correct=None if accuracy is None else accuracy >= RIGHT,
        looked=row is not None and bool(row.calls),
        faithful=None if row is None else row.any_faithful,
        cluster="" if row is None else row.cluster,
        target=None if row is None else row.target,
    )


def _judged(one: Labelled) -> Judged:
    """The judge's verdict and the truth; `box wrong` says nothing about what was shown, so it is left out."""
    said = None if one.label == "box wrong" else one.faithful
    truth = said if said is None or one.label != "judge erred" else not said
    return Judged(cluster=one.cluster, correct=one.correct, target=one.target, said=said, truth=truth)


def _answers(found: Sequence[Labelled]) -> dict[str, Any]:
    """Agreement about answers, without `judge erred` and `box wrong`, which say nothing about them."""
    said: dict[str, bool] = {"right": True, "wrong": False}
    return asdict(agreement((one.correct, said.get(one.label)) for one in found))


def _looks(found: Sequence[Labelled]) -> dict[str, int]:
    labels = Counter(one.label for one in found)
    return {"labelled": len(found), "judge_erred": labels["judge erred"], "box_wrong": labels["box wrong"]}
