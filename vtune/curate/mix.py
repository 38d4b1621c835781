"""The order of what is kept: every source spread evenly over the file."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory


def interleaved(sizes: Mapping[str, int], rng: random.Random) -> Iterator[str]:
    """Names of sources, each as often as it has rows, in an order drawn at random.

    Every order is equally likely (V-Triune, appendix A: uniformly mixed). Rows of one source keep theirs, so
    that files are read from front to back; training shuffles rows anyway.
    """
    left = {name: size for name, size in sizes.items() if size}
    while left:
        (name,) = rng.choices(list(left), list(left.values()))
        yield name
        left[name] -= 1
        if not left[name]:
            del left[name]


def copy_of(record: Sample | Trajectory, number: int) -> Sample | Trajectory:
    """The record when it comes for the `number`-th time, from 0: ids of samples stay unique."""
    if number == 0 or not isinstance(record, Sample):
        return record
    return replace(record, id=f"{record.id}~{number + 1}", extra={**record.extra, "copy_of": record.id})
