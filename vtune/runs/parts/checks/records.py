"""Records with every field that ours may have: what a written format is tested with, one field at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from vtune.data.formats.specimens import encoded_picture
from vtune.data.formats.values import picture_size
from vtune.environments import ENVIRONMENTS
from vtune.schema.box import Box
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Crop, Trajectory
from vtune.tools.python import NAME as PYTHON
from vtune.verifiers import VERIFIERS, choice, exact

ODD = 'as "people"\tsay it,\n\\ünd <b>so</b> 東京 🙂 '
"""A text with everything that table and line formats may trip over."""


def samples(sample: Sample) -> Iterator[tuple[str, Sample]]:
    """(the field that holds more, the sample with it), then one sample with all compatible fields at once.

    Args:
        sample: From the format's own specimen.
    """
    together = {key: value for _, changed in _together(sample) for key, value in changed.items()}
    turns = {"prompt": (Message("system", "Look."), *sample.prompt)}
    for number, (field, changed) in enumerate([*_changes(sample), ("all of it", together | turns)]):
        yield field, replace(sample, id=_named(sample.id, number), **changed)


def _changes(sample: Sample) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from _together(sample)
    asked = Message("user", "Which one?")
    marked = Message("user", f"{IMAGE}{ODD}{IMAGE}", (0, 1))
    pictures = tuple(Picture(data=encoded_picture(number)) for number in (3, 4))
    box = (Evidence("one", 1, _all_of(pictures[1])), Evidence(ODD, 0, (1.5, 2.0, 9.25, 30.0)))
    # A user's own environment may take other ground truths, and without it no verifier reads them.
    plain = {"environment": "", "verifier_parm": {}}
    judged = {**plain, "ground_truth": "a sign", "verifier": exact.NAME, "choices": ()}
    chosen = {**plain, "ground_truth": "B", "verifier": choice.NAME, "choices": ("red", "blue")}
    yield "prompt", {"prompt": (Message("system", "Look."), *sample.prompt)}
    turns = (Message("assistant", "Ask me."), asked)
    yield "prompt (several turns)", {"prompt": (*sample.prompt, *turns)}
    yield "images", {**judged, "prompt": (marked,), "images": pictures, "evidence": ()}
    yield "images (none)", {**judged, "prompt": (asked,), "images": (), "evidence": ()}
    yield "evidence (of several)", {**judged, "prompt": (marked,), "images": pictures, "evidence": box}
    yield "ground_truth", {**judged, "ground_truth": ODD.strip()}
    yield "verifier", chosen
    yield "verifier_parm", {**judged, "verifier_parm": {"aliases": ["the sign", ODD]}}


def _together(sample: Sample) -> list[tuple[str, Mapping[str, Any]]]:
    """Fields that a sample may have besides its question, its pictures and how it is judged."""
    boxes = (Evidence("sign", 0, _all_of(sample.images[0])),) if sample.images else ()
    # The tools provide no reward that a verifier could use.
    elsewhere = not VERIFIERS[sample.verifier].reads_outcome
    return [
        ("source", {"source": "check"}),
        ("ability", {"ability": "check"}),
        ("answer", {"answer": ODD}),
        ("accuracy_ratio", {"accuracy_ratio": 0.5}),
        ("format_ratio", {"format_ratio": 0.25}),
        ("tool_ratio", {"tool_ratio": 0.25}),
        ("tools", {"tools": (PYTHON,)}),
        *([("environment", {"environment": next(iter(ENVIRONMENTS))})] if elsewhere else []),
        *([("evidence", {"evidence": boxes})] if boxes else []),
        ("choices", {"choices": sample.choices or ("red", ODD)}),
        ("extra", {"extra": {**sample.extra, "kept": {"of": [1, 0.5, None, "é"]}}}),
    ]


def traces(trace: Trajectory) -> Iterator[tuple[str, Trajectory]]:
    """(the field that holds more, the trace with it), then one trace with all of them.

    Args:
        trace: From the format's own specimen; one without calls has fewer fields.
    """
    changes: list[tuple[str, Mapping[str, Any]]] = [("source", {"source": "check"})]
    if trace.calls:
        first, *others = trace.calls
        crops = (Crop(0, _all_of(trace.images[0]), shown=first.images[0]),) if first.images else ()
        named: list[tuple[str, Mapping[str, Any]]] = [
            ("status", {"status": "error"}),
            ("error", {"error": "no such file"}),
            ("output", {"output": ""}),
            ("seconds", {"seconds": 0.5}),
            ("crops", {"crops": crops}),
        ]
        full = {key: value for _, changed in named for key, value in changed.items()}
        changes += [
            (f"calls[0].{field}", {"calls": (replace(first, **changed), *others)})
            for field, changed in [*named, ("all", full)]
        ]
    together = {key: value for _, changed in changes for key, value in changed.items()}
    for number, (field, changed) in enumerate([*changes, ("all of it", together)]):
        yield field, replace(trace, sample_id=_named(trace.sample_id, number), **changed)


def _named(known: str, number: int) -> str:
    """Another id of the same form: a format may only hold ids of its own form, such as `cards/17`."""
    head = known.rstrip("0123456789")
    return f"{head}{9000 + number:0{len(known) - len(head)}}"


def _all_of(picture: Picture) -> Box:
    width, height = picture_size(picture)
    return 0.0, 0.0, float(width), float(height)
