import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.reward.build import TARGET, looks, recipe, sample
from vtune.errors import RecipeError
from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Rule
from vtune.reward.score import Scorer
from vtune.runs.audit.drawn import drawn_as
from vtune.runs.audit.located import Audited, check_thresholds, locate, samples_of
from vtune.runs.audit.rerun_turns import Reruns, _key
from vtune.runs.audit.rerun_verdicts import JudgedBy, judged_by, verdict_on
from vtune.runs.evaluate.questions import Choices, Source
from vtune.schema.parquet import write_samples, write_trajectories
from vtune.schema.verdict import Verdict
from vtune.verifiers.grounding import verify_grounding

KIND = "multiple_choice"


def rule(protocol: str) -> Rule:
    found = PROTOCOLS[protocol].rule(KIND)
    assert found is not None
    return found


def audited(protocol: str, *, kind: str = KIND, grader: bool = False) -> Audited:
    choices = Choices(order="official") if kind == KIND else None
    source = Source(
        data=("x",), format="samples", data_from="", kind=kind, protocol=protocol, choices=choices
    )
    return Audited((), source, recipe(), 0, "suite.yaml", has_grader=grader)


def test_a_regenerated_answer_is_judged_like_the_original() -> None:
    asked = sample(TARGET, choices=("red", "blue"), verifier_parm={"answer_in": "reply"})
    told = looks(reply="The right option is certainly (B) in my eyes.")

    async def both(protocol: str) -> list[float]:
        by = judged_by(audited(protocol)) if protocol != "vtune" else JudgedBy(rule(protocol))
        async with Scorer(recipe()) as scorer:
            found = [
                await verdict_on(one, told, by, scorer) for one in (asked, replace(asked, ground_truth="A"))
            ]
        assert all(isinstance(one, Verdict) for one in found)
        return [one.score for one in found if isinstance(one, Verdict)]

    assert asyncio.run(both("vtune")) == [0.0, 0.0]  # a verifier does not accept a bare letter
    assert asyncio.run(both("vlmevalkit")) == [1.0, 0.0]


def test_model_graded_answers_are_not_rerun() -> None:
    kind = "mathvista"
    assert judged_by(audited("official", kind=kind)).name == ("official", kind)
    with pytest.raises(RecipeError, match="graded by a model, for the protocol official") as refused:
        judged_by(audited("official", kind=kind, grader=True))
    assert "--protocol vtune" in refused.value.fix


@pytest.mark.parametrize(("schedule", "thresholds"), [("fixed", [0.5]), ("average", [0.5, 0.9])])
def test_boxes_are_judged_with_the_suites_space_and_threshold(
    schedule: str, thresholds: list[float], tmp_path: Path
) -> None:
    size = {"width": 200, "height": 100}
    asked = sample(verifier="grounding", ground_truth="[20, 10, 60, 40]", verifier_parm=size)
    write_samples(tmp_path / "samples.parquet", [asked])
    write_trajectories(tmp_path / "trajectories.parquet", [looks()])
    iou = {"schedule": schedule, "thresholds": thresholds, "until": [], "target": None}
    suite = {
        "data": [str(tmp_path / "samples.parquet")],
        "seed": 0,
        "reward": {**recipe().model_dump(mode="json"), "iou": iou},
        "reply_space": "relative_1000",
    }
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite))
    (found,) = samples_of(locate(tmp_path, ())).values()
    assert verify_grounding("<answer>[100, 100, 300, 400]</answer>", found).score == 1
    assert not verify_grounding("<answer>[20, 10, 60, 40]</answer>", found).score


STAGED = {"schedule": "staged", "thresholds": [0.5, 0.9], "until": [0.5], "target": None}
ADAPTIVE = {"schedule": "adaptive", "thresholds": [0.5, 0.9], "until": [], "target": 0.5}


@pytest.mark.parametrize(
    ("iou", "recorded", "known"), [(STAGED, False, 0.9), (STAGED, True, 0.5), (ADAPTIVE, True, 0.5)]
)
def test_boxes_of_a_step_are_judged_at_its_threshold(
    iou: dict[str, Any], recorded: bool, known: float, tmp_path: Path
) -> None:
    asked = sample(verifier="grounding", ground_truth="[20, 10, 60, 40]", verifier_parm={"space": "pixels"})
    write_samples(tmp_path / "samples.parquet", [asked])
    run = {"data": [str(tmp_path / "samples.parquet")], "seed": 0, "steps": 4}
    run |= {"reward": {**recipe().model_dump(mode="json"), "iou": iou}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(run))
    if recorded:
        row = {"step": 2, "source": "all", "iou_threshold": 0.5}
        (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    for step in (1, 2):
        write_trajectories(tmp_path / f"trajectories/step-{step:06d}.parquet", [looks()])
    found = locate(tmp_path / "trajectories/step-000002.parquet", ())
    check_thresholds(found)
    assert [one.verifier_parm["iou"] for one in samples_of(found).values()] == [[known]]
    both = locate(tmp_path, ())
    assert ["iou" in one.verifier_parm for one in samples_of(both).values()] == [False]
    with pytest.raises(RecipeError, match="nothing here says at which one"):
        check_thresholds(both)


def test_a_verdict_is_cached_per_truth_and_judge() -> None:
    nothing: Any = None
    reruns = Reruns(
        exchanges=("black",), model="some/model", settings=drawn_as("", "codev"), kind=nothing, seed=0,
        record=nothing, judged_by=JudgedBy(rule("vtune")),
    )  # fmt: skip
    asked = sample(TARGET)
    others = (
        replace(asked, ground_truth="another"),
        replace(asked, verifier_parm={**asked.verifier_parm, "answer_in": "reply"}),
        replace(asked, verifier="math"),
    )
    keys = [_key(reruns, "black", one, looks()) for one in (asked, *others)]
    keys.append(_key(replace(reruns, judge="another-judge"), "black", asked, looks()))
    graded = JudgedBy(rule("vlmevalkit"), ("vlmevalkit", KIND))
    keys.append(_key(replace(reruns, judged_by=graded), "black", asked, looks()))
    assert len(set(keys)) == 6
    assert _key(reruns, "black", replace(asked), looks()) == keys[0]
