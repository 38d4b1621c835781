"""A question of each kind, as its reader makes it: what the promises of protocols are tried on."""

from collections.abc import Mapping
from types import MappingProxyType

from vtune.data.options import listing
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample
from vtune.verifiers import choice, counting, exact

COLOURS = ("red", "green", "blue", "yellow", "none of these")


def _choice(count: int = 4, **extra: object) -> Sample:
    choices = COLOURS[:count]
    return Sample(
        id="check/0",
        source="check",
        prompt=(Message("user", f"{IMAGE}\nWhat is the colour of the sign?\n{listing(choices)}", (0,)),),
        images=(Picture(path="check.png"),),
        ground_truth="B",
        verifier=choice.NAME,
        choices=choices,
        extra={"category": "single", "cycle_category": "0", "l2-category": "sign", **extra},
    )


def _open(truth: str, verifier: str, *aliases: str, **extra: object) -> Sample:
    return Sample(
        id="check/0",
        source="check",
        prompt=(Message("user", f"{IMAGE}\nHow many signs are there?", (0,)),),
        images=(Picture(path="check.png"),),
        ground_truth=truth,
        verifier=verifier,
        verifier_parm={"aliases": list(aliases)} if aliases else {},
        extra={"category": "signs", **extra},
    )


SPECIMENS: Mapping[str, tuple[Sample, str]] = MappingProxyType(
    {
        "multiple_choice": (_choice(), "B"),
        "vstar": (_choice(), "B"),
        "hrbench": (_choice(), "B"),
        "treebench": (_choice(), "B"),
        "mme_realworld": (_choice(5, category="Perception/Signs"), "B"),
        "mmmu": (_choice(), "B"),
        "mmmu_pro": (_choice(5), "B"),
        "mmmu_pro_vision": (_choice(5), "B"),
        "vlmblind": (_open("3", exact.NAME, "{3}", task="Nested Squares"), "{3}"),
        "count": (_open("3", counting.NAME), "3"),
    }
)
"""Kind -> (a question, the right answer)."""
