import asyncio
import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reward.build import INPUT, LEVELS, PIXELS, encode, looks, recipe, sample
from vtune.reward.audit import AuditRow, audit, with_chance
from vtune.reward.chance import (
    BY_ANOTHER,
    FEWEST,
    TOO_FEW,
    CallLooks,
    Look,
    Target,
    chances,
    looks_of,
    shows,
    targets_of,
)
from vtune.reward.evidence_boxes import BoxJudge
from vtune.reward.score import Scorer
from vtune.schema.box import Box
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

QUESTIONS = 24
CLAIMED = LEVELS.model_copy(update={"looks": "claimed"})


@dataclass(frozen=True)
class Held:
    looks: tuple[CallLooks, ...] | None
    targets: tuple[Target, ...] = ()
    sample_id: str = "quiz/0"
    source: str = "quiz"
    any_faithful: bool | None = True
    cluster: str = field(default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", self.cluster or self.sample_id)


def picture(number: int) -> Picture:
    """A different picture of the same scene, as questions about one picture do not count as others."""
    pixels = PIXELS.copy()
    pixels[0, 0] = number
    return Picture(encode(pixels), seen=(100, 100))


def questions() -> list[Sample]:
    rng = random.Random(0)
    corners = [(rng.randrange(84), rng.randrange(84)) for _ in range(QUESTIONS)]
    return [
        sample((x, y, x + 16, y + 16), id=f"quiz/{n}", images=(picture(n),))
        for n, (x, y) in enumerate(corners)
    ]


def canvas(box: Box, margin: int, origin: str) -> Picture:
    x0, y0, x1, y1 = (int(side) for side in box)
    pixels = np.pad(PIXELS[y0:y1, x0:x1], ((margin, margin), (margin, margin), (0, 0)), constant_values=255)
    return Picture(encode(pixels), origin=origin, seen=(4 * pixels.shape[1], 4 * pixels.shape[0]))


def answered(one: Sample, *calls: list[Box], margin: int = 0) -> Trajectory:
    """A trajectory whose calls show regions, one picture each, within a white margin."""
    images, made = [*one.images], []
    for k, boxes in enumerate(calls):
        part = looks(*boxes)
        first = len(images)
        crops = tuple(replace(call.crops[0], shown=first + n) for n, call in enumerate(part.calls))
        images += [replace(seen, origin=f"call:{k}") for seen in part.images[1:]]
        if margin:
            images[first:] = [canvas(box, margin, f"call:{k}") for box in boxes]
            crops = tuple(
                replace(crop, matrix=(1.0, 0.0, crop.bbox[0] - margin, 0.0, 1.0, crop.bbox[1] - margin))
                for crop in crops
            )
        shown = tuple(range(first, len(images)))
        made.append(replace(part.calls[0], images=shown, crops=crops))
    return replace(looks(), sample_id=one.id, images=tuple(images), calls=tuple(made))


def honest(one: Sample) -> Trajectory:
    x0, y0, x1, y1 = one.evidence[0].bbox
    return answered(one, [(max(x0 - 3, 0), max(y0 - 3, 0), min(x1 + 3, 100), min(y1 + 3, 100))])


def halves(one: Sample, margin: int = 0) -> Trajectory:
    """Two calls, each with five strips of half the picture: everything, whatever the question."""
    strips = ([(x, y, x + 50, y + 20) for y in range(0, 100, 20)] for x in (0, 50))
    return answered(one, *strips, margin=margin)


def audited(samples: list[Sample], trajectories: list[Trajectory]) -> list[AuditRow]:
    async def story() -> list[AuditRow]:
        async with Scorer(recipe()) as scorer:
            scored = await scorer.score(samples, trajectories)
            return with_chance(await audit(samples, scored, scorer.judges), scorer.judges.levels)

    return asyncio.run(story())


def share(rows: list[AuditRow]) -> tuple[float, float]:
    """The share of faithful trajectories, and its chance level."""
    known = [row.by_chance for row in rows if row.by_chance is not None]
    assert len(known) == len(rows) == QUESTIONS
    return sum(bool(row.any_faithful) for row in rows) / len(rows), sum(known) / len(known)


def test_an_honest_policy_is_far_above_chance_and_a_blind_one_is_at_chance() -> None:
    asked = questions()
    faithful, by_chance = share(audited(asked, [honest(one) for one in asked]))
    assert faithful == 1.0
    assert by_chance < 0.15
    faithful, by_chance = share(audited(asked, [halves(one) for one in asked]))
    assert faithful > 0.5
    assert by_chance == pytest.approx(faithful, abs=0.1)
    faithful, by_chance = share(audited(asked, [answered(one, [(0, 0, 100, 100)]) for one in asked]))
    assert (faithful, by_chance) == (0.0, 0.0)


@pytest.mark.parametrize("margin", [5, 20, 60])
def test_a_margin_does_not_hide_that_looks_are_blind(margin: int) -> None:
    asked = questions()
    faithful, by_chance = share(audited(asked, [halves(one, margin) for one in asked]))
    assert faithful > 0.5
    assert by_chance == pytest.approx(faithful, abs=0.1)


def test_the_chance_level_does_not_depend_on_order_or_shards() -> None:
    asked = questions()
    rows = audited(asked, [halves(one) for one in asked])
    mixed = rows[::-1]
    assert with_chance(mixed, LEVELS) == mixed
    assert {row.by_chance for row in rows} > {1.0}, "others are drawn for each question"


def test_without_boxes_or_other_questions_the_chance_level_is_missing_with_a_reason() -> None:
    asked = questions()
    few = asked[:FEWEST]
    rows = audited(few, [honest(one) for one in few])
    assert [(row.by_chance, row.no_chance) for row in rows] == [(None, TOO_FEW)] * FEWEST
    (none,) = audited(asked[:1], [answered(asked[0])])
    assert (none.by_chance, none.no_chance) == (0.0, ""), "without a call nothing is shown by chance"
    (unknown,) = audited([sample()], [looks((0, 0, 30, 30))])
    assert (unknown.by_chance, unknown.no_chance) == (None, BY_ANOTHER)
    # Questions about the same picture could have the same target.
    alike = [replace(one, images=(INPUT,)) for one in asked]
    assert {row.no_chance for row in audited(alike, [honest(one) for one in alike])} == {TOO_FEW}


box = st.tuples(*[st.integers(0, 70)] * 2, *[st.integers(8, 30)] * 2).map(
    lambda sides: (sides[0], sides[1], sides[0] + sides[2], sides[1] + sides[3])
)
call = st.lists(st.one_of(box, st.just((0, 0, 100, 100)), st.just((0, 0, 40, 90))), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(call, min_size=1, max_size=3),
    st.one_of(box, st.just((10, 10, 90, 90))),
    st.sampled_from([0, 0, 4, 30, 300]),
)
@pytest.mark.parametrize("levels", [LEVELS, CLAIMED])
def test_on_its_own_question_chance_equals_the_judges_verdict(levels, calls, target, margin) -> None:
    one = sample(target)

    async def story() -> tuple[Trajectory, list[bool]]:
        async with Scorer(recipe(evidence=levels)) as scorer:
            (scored,) = await scorer.score([one], [answered(one, *calls, margin=margin)])
        judge = BoxJudge(levels)
        judge._problem = lambda *_: ""  # type: ignore[method-assign]  # pixels aside
        return scored, [await judge.shows_target(one, scored, k) for k in range(len(calls))]

    scored, said = asyncio.run(story())
    targets = targets_of(one, scored)
    assert [shows(each, targets, levels) for each in looks_of(scored, levels)] == said


unit = st.tuples(*[st.floats(0, 0.6)] * 2, *[st.floats(0.05, 0.4)] * 2).map(
    lambda sides: (sides[0], sides[1], sides[0] + sides[2], sides[1] + sides[3])
)
look = st.builds(
    Look, st.integers(0, 1), unit, st.floats(0.01, 1), st.floats(0.01, 1), st.booleans(), st.booleans()
)
large = st.lists(st.tuples(st.integers(0, 1), st.floats(0.5, 1)), max_size=1).map(tuple)
shown = st.builds(CallLooks, st.lists(look, max_size=3).map(tuple), large)


@settings(max_examples=60, deadline=None)
@given(st.lists(shown, max_size=3), st.lists(unit, min_size=FEWEST, max_size=30), st.randoms())
def test_chance_is_between_0_and_1_and_ignores_call_order(calls, boxes, chance) -> None:
    others = [Held((), (Target(n % 2, one),), sample_id=f"quiz/{n + 1}") for n, one in enumerate(boxes)]
    mixed = chance.sample(calls, len(calls))
    own = (Target(0, (0.0, 0.0, 0.5, 0.5)),)
    (first, *_), (second, *_) = (
        chances([Held(tuple(order), own), *others], LEVELS) for order in (calls, mixed)
    )
    assert first == second
    assert 0 <= first <= 1
    alone, *_ = chances([Held(tuple(calls[:1]), own), *others], LEVELS)
    assert alone <= first, "another call can only show more"
