"""Can a reply to it be judged at all? OCR labels must pass math-verify (V-Triune, appendix A)."""

from dataclasses import replace
from typing import Literal

from vtune.curate.item import Item, Selected
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth


class Verifiable(Selected):
    """Drops samples whose ground truth a verifier cannot read."""

    filter: Literal["verifiable"]
    verifier: str | None
    """Name of a verifier, with its own options left out; null asks the sample's own."""


def unverifiable(spec: Verifiable, item: Item) -> str | None:
    """The reason to drop what no reply could get right. Main thread only (see `check_ground_truth`)."""
    sample = item.sample
    if spec.verifier is not None:
        sample = replace(sample, verifier=spec.verifier, verifier_parm={})
    try:
        check_ground_truth(sample)
    except DataError as error:
        return error.what
    return None
