"""The order of what is kept: every source spread evenly over the file."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory


def interleaved(sizes: Mapping[str, int], rng: random.Random) -> Iterator[str]:
    """Names of sources in random order, each as often as it has rows.

    Every order is equally likely (V-Triune, appendix A: uniformly mixed). Rows of one source keep their
    order, so that files are read front to back; training shuffles rows anyway.
    """
    left = {name: size for name, size in sizes.items() if size}
    while left:
        (name,) = rng.choices(list(left), list(left.values()))
        yield name
        left[name] -= 1
        if not left[name]:
            del left[name]


def copy_of(record: Sample | Trajectory, number: int) -> Sample | Trajectory:
    """The record at its `number`-th occurrence, from 0; sample ids stay unique."""
    if number == 0 or not isinstance(record, Sample):
        return record
    return replace(record, id=f"{record.id}~{number + 1}", extra={**record.extra, "copy_of": record.id})
