"""Which questions belong together: those about the same pictures, or versions of one question."""

import hashlib
from pathlib import Path

from vtune.schema.parquet.trajectories import INPUTS
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

PROBLEM = "problem"
"""Key in `extra`: the number of the problem that a question is a version of (MathVerse's `problem_index`)."""


def cluster_of(trajectory: Trajectory, sample: Sample) -> str:
    """The same name for all rollouts of a question, and for all questions that belong together.

    Questions about the same pictures belong together: the four rotations of an HR-Bench question are one
    cluster, and so are several questions about one photograph, since a judge that errs on one is likely to
    err on the others. So do MathVerse's versions of a problem, although their pictures differ. A question
    without pictures, or with pictures that are not available, is a separate cluster. What an environment
    shows before the first turn does not count: many environments begin with the same picture.

    Args:
        trajectory: The rollout.
        sample: Its question.
    """
    problem = sample.extra.get(PROBLEM)
    if isinstance(problem, str) and problem.isdecimal():  # elsewhere a column with this name contains text
        return f"{sample.source}, problem {problem}"
    names = []
    shown = [picture for picture in trajectory.images if picture.origin == "input"]
    for picture in shown[: len(sample.images)] if sample.environment else shown:
        if picture.path is not None and Path(picture.path).parent.name == INPUTS:
            names.append(Path(picture.path).name)  # named after its SHA-256
        elif picture.data is not None:
            names.append(hashlib.sha256(picture.data).hexdigest()[:32])
        else:
            return trajectory.sample_id
    # In any order: shuffling options that are pictures moves them.
    return "+".join(sorted(names)) or trajectory.sample_id
