import asyncio
from dataclasses import replace

import pytest

from tests.judge.server import serve
from tests.reward.build import INPUT, TARGET, WRONG, looks, recipe, sample
from vtune.errors import DataError, RunFailed
from vtune.judge.endpoint import BatchedEndpoint
from vtune.reward.audit import (
    AuditRow,
    audit,
    check_audited,
    check_scored,
    comparison,
    judges_of,
    nobody_audited,
    unscored_reasons,
)
from vtune.reward.score import Scorer
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory

WHOLE = (0, 0, 100, 100)


def audited(
    samples: list[Sample], *trajectories: Trajectory, judge: BatchedEndpoint | None = None
) -> list[AuditRow]:
    """Audit with a judge trajectories that were scored without one."""

    async def story() -> list[AuditRow]:
        async with Scorer(recipe()) as scorer, Scorer(recipe(judge=judge)) as auditor:
            return await audit(samples, await scorer.score(samples, trajectories), auditor.judges)

    return asyncio.run(story())


def test_a_trajectory_is_faithful_if_any_call_shows_a_target() -> None:
    rows = audited(
        [sample(TARGET)],
        looks(TARGET),
        looks((0, 0, 30, 30), TARGET),
        looks(WHOLE),
        looks(INPUT, reply=WRONG),
        looks(),
        looks("infra"),
        looks("infra", TARGET),
    )
    assert [(row.correct, row.calls, row.any_faithful, row.flagged) for row in rows] == [
        (True, 1, True, 0),
        (True, 2, True, 0),
        (True, 1, False, 1),
        (False, 1, False, 1),
        (True, 0, False, 0),
        (True, 1, None, 0),
        (True, 2, True, 0),
    ]
    assert "sandbox" in rows[5].why


def test_a_judge_that_fails_ends_the_audit_with_its_own_reason() -> None:
    async def story() -> None:
        async with Scorer(recipe()) as scorer:
            scored = await scorer.score([sample()], [looks(TARGET)])

            class Judges:
                levels = scorer.judges.levels

                def __getattr__(self, name: str) -> None:
                    raise RunFailed("the judge is broken", fix="repair it")

            await audit([sample()], scored, Judges())  # type: ignore[arg-type]

    with pytest.raises(RunFailed, match="the judge is broken"):
        asyncio.run(story())


def test_questions_that_need_no_look_are_left_out() -> None:
    assert audited([sample(ability="math")], looks(TARGET)) == []


def test_without_a_judge_looks_are_unscored_but_no_call_means_no_look() -> None:
    seen, none = audited([sample()], looks(TARGET), looks())
    assert (seen.any_faithful, none.any_faithful) == (None, False)
    assert "no judge" in seen.why


def test_a_failed_rollout_is_neither_right_nor_wrong() -> None:
    (row,) = audited([sample(TARGET)], looks(TARGET, stop_reason="error"))
    assert row.correct is None
    assert row.why == "the answer is unscored"


def test_a_trajectory_of_another_sample_is_an_error() -> None:
    with pytest.raises(DataError, match="quiz/2"):
        asyncio.run(audit([sample(TARGET)], [looks(sample_id="quiz/2")], Scorer(recipe()).judges))


def test_an_audit_that_leaves_out_too_many_is_refused_with_the_most_common_reason() -> None:
    rows = audited([sample()], looks(), looks(TARGET), looks(TARGET), looks(TARGET, stop_reason="error"))
    blind = "no evidence boxes, and no judge in the recipe"
    assert unscored_reasons(rows) == [(blind, 3)]
    check_audited(rows, 0.75)
    check_audited([], 0.0)
    with pytest.raises(RunFailed, match=r"75\.0% .*limit is 74\.0%(.|\n)*3 of 4: no evidence boxes"):
        check_audited(rows, 0.74)
    check_scored(rows, 0.25)
    with pytest.raises(RunFailed, match=r"25\.0% .*limit is 24\.0%(.|\n)*1 of 4: no evidence boxes"):
        check_scored(rows, 0.24)


SMALL = (42, 42, 46, 46)
"""A target of 4 x 4 pixels: a crop of 60 x 60 shows all of it, but it covers only a 225th of the crop."""


def test_a_look_that_shows_the_target_too_small_is_not_a_miss() -> None:
    rows = audited(
        [sample(SMALL)],
        looks((20, 20, 80, 80)),
        looks((0, 0, 30, 30), (20, 20, 80, 80)),
        looks((0, 0, 30, 30)),
        looks((44, 20, 80, 80)),
        looks(WHOLE),
        looks((40, 40, 50, 50)),
        looks(),
    )
    assert [(row.any_faithful, row.small) for row in rows] == [
        (False, True),
        (False, True),
        (False, False),
        (False, False),
        (False, False),
        (True, False),
        (False, False),
    ]


def test_an_audit_without_any_judged_call_fails() -> None:
    blind = audited([sample()], looks(TARGET), looks(TARGET), looks())
    failed = nobody_audited(blind)
    assert failed is not None
    assert failed.what == "none of the 2 trajectories with tool calls could be audited"
    assert "2 of 2: no evidence boxes" in failed.where
    assert nobody_audited(audited([sample()], looks())) is None
    assert nobody_audited([*blind, *audited([sample(TARGET)], looks(TARGET))]) is None


def test_a_failed_rollout_does_not_count_as_an_unaudited_call() -> None:
    reply = Call(tool="python", arguments="{}", status="infra", error="no reply: 500\n  fix  wait")
    broken = replace(looks(), calls=(reply,), stop_reason="error")
    rows = audited([sample(TARGET)], broken)
    assert (rows[0].calls, rows[0].why) == (1, "the rollout failed: no reply: 500")
    assert nobody_audited(rows) is None
    assert nobody_audited([*rows, *audited([sample()], looks(TARGET))]) is not None


def test_results_that_need_no_judge_do_not_suggest_that_there_was_one() -> None:
    texts = [replace(looks(), calls=(Call(tool="python", arguments="{}", status=status, output="3"),))
             for status in ("error", "ok")]  # fmt: skip
    rows = audited([sample()], looks(TARGET), *texts)
    assert [row.any_faithful for row in rows] == [None, None, None]
    by_model = [replace(row, by="model") for row in rows]
    known = [by_model[0], *(replace(row, any_faithful=False) for row in by_model[1:])]
    failed = nobody_audited(known)
    assert failed is not None
    assert failed.what == "none of the 1 trajectories with tool calls could be audited"
    assert judges_of(known) == {"boxes": 0, "model": 0}
    assert nobody_audited(known[1:]) is None


def test_a_model_judges_only_what_it_is_asked_and_boxes_judge_every_call() -> None:
    text = replace(looks(), calls=(Call(tool="python", arguments="{}", status="error", error="NameError"),))
    some = [looks(TARGET), looks((0, 0, 30, 30)), looks(WHOLE), text, looks()]
    with serve("0") as judge:
        rows = audited([sample()], *some, judge=judge.endpoint())
        assert len(judge.requests) == 2
    assert [row.any_faithful for row in rows] == [False] * 5
    assert [row.judged for row in rows] == [True, True, False, False, False]
    assert judges_of(rows) == {"boxes": 0, "model": 2}
    by_boxes = audited([sample(TARGET)], *some)
    assert [row.judged for row in by_boxes] == [True, True, True, True, False]


def test_a_call_that_failed_after_it_had_shown_the_target_was_judged() -> None:
    shown = looks(TARGET)
    failed = replace(shown, calls=(replace(shown.calls[0], status="error", error="NameError"),))
    rows = audited([sample(TARGET)], failed)
    assert (rows[0].any_faithful, rows[0].judged) == (True, True)
    assert judges_of(rows) == {"boxes": 1, "model": 0}


def test_box_based_numbers_are_marked_as_not_comparable_with_the_papers() -> None:
    rows = audited([sample(TARGET)], looks(TARGET), looks())
    assert judges_of(rows) == {"boxes": 1, "model": 0}
    assert "not comparable with CodeV's Table 5" in comparison(judges_of(rows))
    assert "not comparable" not in comparison({"boxes": 0, "model": 3})
    assert comparison({"boxes": 0, "model": 0}) == "nothing was judged"
