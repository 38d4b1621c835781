"""Which questions belong together: those about the same pictures."""

import hashlib
from pathlib import Path

from vtune.schema.parquet.trajectories import INPUTS
from vtune.schema.trajectory import Trajectory


def cluster_of(trajectory: Trajectory) -> str:
    """The same name for all rollouts of a question, and for all questions about the same pictures.

    So the four rotations of an HR-Bench question are one cluster, and so are several questions about one
    photograph: who misjudges it once is likely to do so again. A question without pictures, or whose pictures
    are not at hand, stands for itself.
    """
    names = []
    for picture in trajectory.images:
        if picture.origin != "input":
            continue
        if picture.path is not None and Path(picture.path).parent.name == INPUTS:
            names.append(Path(picture.path).name)  # its own SHA-256
        elif picture.data is not None:
            names.append(hashlib.sha256(picture.data).hexdigest()[:32])
        else:
            return trajectory.sample_id
    return "+".join(names) or trajectory.sample_id
