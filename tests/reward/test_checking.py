"""Which samples need a judge, who asks it, and what is said if it is silent."""

from dataclasses import replace

import pytest

from tests.reward.build import TARGET, looks, recipe, sample
from tests.reward.test_score import ASKED, NOWHERE
from vtune.errors import RecipeError
from vtune.reward.checking import check_samples, silent_line, take_silent
from vtune.reward.recipe import Counterfactual, RewardService
from vtune.schema.reward import Reward

CHECKED = Counterfactual(weight=0.5, share=1.0)


def test_looks_that_only_feedback_or_the_counterfactual_judges_need_a_judge_too() -> None:
    for feedback, changes, named in (
        (True, {}, "leave out rollout.feedback"),
        (False, {"counterfactual": CHECKED}, "leave out reward.counterfactual"),
    ):
        with pytest.raises(RecipeError, match=named):
            check_samples([sample()], recipe(tool=0.0, **changes), feedback=feedback)
        check_samples(
            [sample(TARGET), sample(ability="math")], recipe(tool=0.0, **changes), feedback=feedback
        )
        found = check_samples([sample()], recipe(tool=0.0, judge=NOWHERE, **changes), feedback=feedback)
        assert (found.paid, found.looks, found.judged_looks) == (0, 0, 1)


def test_beside_a_service_the_run_asks_its_judge_only_for_feedback_and_the_counterfactual() -> None:
    away = RewardService(urls=("http://localhost:9",))
    asked = [sample(), sample(**ASKED), sample(TARGET, verifier="judge", ground_truth="a red cup")]
    for feedback, changes, here in (
        (False, {}, (0, 0)),
        (True, {}, (0, 1)),
        (False, {"counterfactual": CHECKED}, (1, 1)),
    ):
        rules = recipe(judge=NOWHERE, service=away, **changes)
        found = check_samples(asked, rules, feedback=feedback)
        assert (found.judged_answers, found.judged_looks) == (2, 1)
        assert found.asked_here(rules) == here
        assert found.asked_here(recipe(judge=NOWHERE, **changes)) == (2, 1)


def test_a_sample_that_a_step_asks_twice_is_silent_twice() -> None:
    lost = Reward(total=None, accuracy=None, format=1.0, tool=None, why="the judge (at J)")
    one = replace(looks(), reward=lost)
    step = [replace(one, group=group, rollout=rollout) for group in (0, 1) for rollout in (0, 1)]
    silent = {
        (one.sample_id, 0): lost.why,
        (one.sample_id, 1): lost.why,
        ("of the next step", 0): "elsewhere",
    }
    line = silent_line([take_silent(step, silent)], 8)
    assert line == f"4 of 8 trajectories are unscored, {one.sample_id} the first of them: the judge (at J)"
    assert silent == {("of the next step", 0): "elsewhere"}
