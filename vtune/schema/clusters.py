"""Which questions belong together: those about the same pictures, or versions of one question."""

import hashlib
from pathlib import Path

from vtune.schema.parquet.trajectories import INPUTS
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

PROBLEM = "problem"
"""In `extra`: the number of the problem that a question is a version of (MathVerse's `problem_index`)."""


def cluster_of(trajectory: Trajectory, sample: Sample) -> str:
    """The same name for all rollouts of a question, and for all questions that belong together.

    Questions about the same pictures do: the four rotations of an HR-Bench question are one cluster, and so
    are several questions about one photograph. Who misjudges it once is likely to do so again. MathVerse's
    versions of a problem do, whose pictures differ. A question without pictures, or whose pictures are not at
    hand, stands for itself. What an environment shows before the first turn is not a picture of the question:
    many worlds begin with the same.

    Args:
        trajectory: Of the rollout.
        sample: Its question.
    """
    problem = sample.extra.get(PROBLEM)
    if isinstance(problem, str) and problem.isdecimal():  # elsewhere a column of that name holds a text
        return f"{sample.source}, problem {problem}"
    names = []
    shown = [picture for picture in trajectory.images if picture.origin == "input"]
    for picture in shown[: len(sample.images)] if sample.environment else shown:
        if picture.path is not None and Path(picture.path).parent.name == INPUTS:
            names.append(Path(picture.path).name)  # its own SHA-256
        elif picture.data is not None:
            names.append(hashlib.sha256(picture.data).hexdigest()[:32])
        else:
            return trajectory.sample_id
    return "+".join(names) or trajectory.sample_id
