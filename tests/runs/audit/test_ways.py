from dataclasses import replace
from pathlib import Path

import pytest

from tests.reward.build import recipe
from vtune.errors import RecipeError
from vtune.judge.budget import Budget, OverBudget
from vtune.judge.endpoint import BatchedEndpoint
from vtune.reward.audit import AuditRow
from vtune.runs.audit.kept_replies import kept_replies
from vtune.runs.audit.ways import together, ways_of

ROW = AuditRow(
    sample_id="a", source="a", cluster="a", correct=True, calls=2, any_faithful=True, flagged=0,
    helpful=2, first=1, by="model",
)  # fmt: skip


def test_a_majority_gives_no_verdict_on_single_calls() -> None:
    """The first judge's verdicts on calls are not those of the majority."""
    other = replace(ROW, any_faithful=False, helpful=0, first=None)
    (found,) = together([[ROW], [other], [other]])
    assert (found.any_faithful, found.helpful, found.first) == (False, None, None)
    (found,) = together([[ROW], [ROW], [other]])
    assert (found.any_faithful, found.helpful, found.first) == (True, None, None)


def test_acceptance_in_the_conversation_also_uses_the_majority() -> None:
    """Otherwise a share over accepted pictures could exceed the share over all."""
    yes = replace(ROW, accepted=True)
    no = replace(ROW, any_faithful=False, helpful=0, first=None, accepted=False)
    (found,) = together([[yes], [no], [no]])
    assert (found.any_faithful, found.accepted) == (False, False)
    (found,) = together([[no], [yes], [yes]])
    assert (found.any_faithful, found.accepted) == (True, True)
    (found,) = together([[ROW], [ROW], [ROW]])
    assert found.accepted is None, "no picture came back that could be accepted"


JUDGE = BatchedEndpoint(
    base_url="http://localhost:1/v1", model="m", temperature=0.0, max_tokens=10, concurrency=1, retries=0,
    timeout_s=1.0, api_key_env=None, budget=Budget(tokens=5),
)  # fmt: skip


def test_a_concurrent_audit_of_the_same_model_is_asked_to_wait(tmp_path: Path) -> None:
    ways = ways_of("auto", recipe(judge=JUDGE), (), (), settings="")
    with kept_replies(tmp_path, ways):
        with pytest.raises(RecipeError, match="another process") as caught, kept_replies(tmp_path, ways):
            pass
        assert caught.value.fix is not None
        assert "--out" not in caught.value.fix, "`vtune faithfulness` has no such option"
    assert not list(tmp_path.iterdir())


def test_the_budget_of_the_recipes_judge_holds_in_an_audit() -> None:
    (way,) = ways_of("auto", recipe(judge=JUDGE), (), (), settings="")
    with pytest.raises(OverBudget):
        way.purse.hold(["a question"], 0, 10)
    (way,) = ways_of("auto", recipe(), (), (), settings="")
    way.purse.hold(["a question"], 0, 10)
