from dataclasses import replace
from typing import Any

from tests.reward.build import TARGET, looks, sample
from vtune.runs.audit.drawn import drawn_as
from vtune.runs.audit.rerun_turns import Reruns, _key


def test_a_verdict_is_kept_for_the_truth_and_the_judge_that_gave_it() -> None:
    nothing: Any = None
    reruns = Reruns(
        exchanges=("black",), model="some/model", settings=drawn_as("", "codev"), kind=nothing, seed=0,
        record=nothing,
    )  # fmt: skip
    asked = sample(TARGET)
    others = (
        replace(asked, ground_truth="another"),
        replace(asked, verifier_parm={**asked.verifier_parm, "answer_in": "reply"}),
        replace(asked, verifier="math"),
    )
    keys = [_key(reruns, "black", one, looks()) for one in (asked, *others)]
    keys.append(_key(replace(reruns, judge="another-judge"), "black", asked, looks()))
    assert len(set(keys)) == 5
    assert _key(reruns, "black", replace(asked), looks()) == keys[0]
