"""Can replies be judged at all? OCR labels must pass math-verify (V-Triune, appendix A)."""

from dataclasses import replace
from typing import Any

from pydantic import field_validator

from vtune.curate.filters import FILTERS, FilterPart
from vtune.curate.item import Item, Selected
from vtune.curate.reasoning import answer_of
from vtune.errors import DataError
from vtune.verifiers import VERIFIERS, check_ground_truth, exact
from vtune.verifiers.limit import limited
from vtune.verifiers.math import same_value


class Verifiable(Selected):
    """Drops samples whose ground truth a verifier cannot read."""

    verifier: str | None = None
    """Name of a verifier, used without options; null uses the sample's own verifier."""

    @field_validator("verifier")
    @classmethod
    def _is_one(cls, name: str | None) -> str | None:
        if name is not None and name not in VERIFIERS:
            raise ValueError(f"no verifier is called {name!r}; {VERIFIERS.meant(name)}")
        return name


class MathVerifiable(Selected):
    """Drops answers that math-verify cannot match with themselves: V-Triune's condition on OCR labels.

    Words meet it, as it reads them as products of letters; the verifier `math` rejects them.
    """


def unverifiable(spec: Verifiable, item: Item) -> str | None:
    """The reason to drop what no reply can get right, or None. Main thread only (`check_ground_truth`)."""
    sample = item.sample
    if spec.verifier is not None:
        sample = replace(sample, verifier=spec.verifier, verifier_parm={})
    try:
        check_ground_truth(sample)
    except DataError as error:
        return error.what
    return None


def no_expression(spec: MathVerifiable, item: Item) -> str | None:
    """The reason to drop what math-verify cannot read, or None. Main thread only (see `limited`)."""
    from math_verify import LatexExtractionConfig, parse

    truth = answer_of(item.sample)
    config = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
    boxed = f"\\boxed{{{truth}}}"
    empty: list[Any] = []
    found = limited(lambda: parse(boxed, [config], fallback_mode="no_fallback", parsing_timeout=None), empty)
    if found and same_value(found, found):
        return None
    return f"math-verify cannot read the answer {truth!r:.60}"


FILTERS.add(
    "verifiable",
    FilterPart(
        Verifiable,
        unverifiable,
        keeps={"verifier": exact.NAME},
        drops={"verifier": exact.NAME, "ground_truth": ""},
    ),
)
FILTERS.add(
    "math_verifiable",
    FilterPart(MathVerifiable, no_expression, keeps={"ground_truth": "2"}, drops={"ground_truth": "="}),
)
