"""Requests of V-Triune's published client over HTTP to a service in this process."""

import json
from typing import Any

import httpx2
import pytest

from tests.reward.build import recipe
from tests.reward.test_service import asked
from vtune.reward.recipe import IouSchedule, RewardRecipe

TRUCK = "[{'bbox_2d': [0, 200, 1000, 1000], 'label': 'truck'}]"
RUN = {
    "is_training": True,
    "step": 5,
    "total_steps": 100,
    "image_path": "/p",
    "image_grid_thw": [[1, 420, 616]],
}
DATA = {
    "verifier_style": "rule",
    "det_verifier_normalized": True,
    "det_reward_ratio": {"iou_max_label_first": 1.0},
}
FORM = "<think>\nSo.\n</think>\n\n<answer>\n{}\n</answer>"

STAGED = IouSchedule(schedule="staged", thresholds=(0.85, 0.95, 0.99), until=(0.1, 0.25), target=None)


def request(response: str, solution: str, verifier: str = "mathverify", **changes: Any) -> dict[str, Any]:
    parm = json.dumps(RUN | DATA | changes.pop("parm", {}))
    return {
        "response": response,
        "prompt": "<image>How many?",
        "answer": "42",
        "solution": solution,
        "data_source": "coco2017",
        "reward_verifier": verifier,
        "reward_verifier_parm": parm,
    } | changes


def judge(body: Any, given: RewardRecipe | None = None) -> httpx2.Response:
    (answer,) = asked(("POST", "/judge", body), given=given, headers={"content-type": "application/json"})
    return answer


def boxes(*corners: float) -> str:
    """A reply with one truck, in pixels of the shown picture (616 x 420)."""
    x0, y0, x1, y1 = corners
    box = [x0 * 0.616, y0 * 0.42, x1 * 0.616, y1 * 0.42]
    return FORM.format(json.dumps([{"bbox_2d": box, "label": "truck"}]))


def test_the_published_client_understands_the_service() -> None:
    root, answer = asked(("GET", "/", None), ("POST", "/judge", request(FORM.format("\\boxed{42}"), "42")))
    assert root.json() == {"message": "Reward Judge Server"}
    assert answer.status_code == 200
    rewards = answer.json()["rewards"]
    assert {"format_reward", "accuracy_reward", "reflection_reward", "final_reward"} <= set(rewards)
    assert all(name.endswith("_reward") for name in rewards)


def test_the_parts_are_divided_by_the_sum_of_their_ratios() -> None:
    right, bare = FORM.format("\\boxed{42}"), "\\boxed{42}"
    cases: list[tuple[str, dict[str, Any], float]] = [
        (right, {}, 1.0),
        (bare, {}, 1.0 / 1.1),
        (bare, {"format_ratio": 0.5, "accuracy_ratio": 1.5}, 0.75),
        (FORM.format("\\boxed{41}"), {"format_ratio": 0.5, "accuracy_ratio": 1.5}, 0.25),
        ("\n<answer>\n\\boxed{41}\n</answer>", {"format_ratio": 1.0, "accuracy_ratio": 0.0}, 0.5),
    ]
    bodies = [request(response, "\\boxed{42}", **changes) for response, changes, _ in cases]
    answers = asked(*(("POST", "/judge", body) for body in bodies))
    finals = [answer.json()["rewards"]["final_reward"] for answer in answers]
    assert finals == pytest.approx([final for _, _, final in cases])


def test_boxes_are_converted_from_the_shown_picture_to_thousandths() -> None:
    rewards = judge(request(boxes(0, 200, 1000, 1000), f"<answer> {TRUCK} </answer>", "detection")).json()[
        "rewards"
    ]
    assert rewards["accuracy_reward"] == pytest.approx(1.0)
    assert rewards["format_reward"] == 1.0
    assert rewards["ap_reward"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("given", "changes", "score"),
    [
        pytest.param(None, {}, 0.9 * 9 / 11, id="by default the mean over its eleven thresholds"),
        pytest.param(STAGED, {}, 0.9, id="staged, early"),
        pytest.param(STAGED, {"step": 10}, 0.9, id="staged, the last step of a stage"),
        pytest.param(STAGED, {"step": 11}, 0.0, id="staged, the first of the next"),
        pytest.param(STAGED, {"step": 50}, 0.0, id="staged, late"),
        pytest.param(STAGED, {"step": 50, "iou": 0.5}, 0.9, id="the request's own counts more"),
    ],
)
def test_thresholds_follow_the_recipe_and_the_step_of_the_request(
    given: IouSchedule | None, changes: dict[str, Any], score: float
) -> None:
    body = request(boxes(0, 280, 1000, 1000), TRUCK, "detection", parm=changes)
    answer = judge(body, recipe(iou=given))
    assert answer.json()["rewards"]["accuracy_reward"] == pytest.approx(score, abs=1e-6)


def test_the_box_format_score_is_0_or_1() -> None:
    for response, form in (
        (boxes(0, 0, 1, 1), 1.0),
        ("<answer>[{'bbox_2d': [0, 0, 1, 1], 'label': 'truck'}]</answer>", 0.0),
        (FORM.format("a truck"), 0.0),
        (FORM.format("[]"), 0.0),
    ):
        rewards = judge(request(response, TRUCK, "detection")).json()["rewards"]
        assert rewards["format_reward"] == form, response


def test_our_own_verifiers_are_available_by_name() -> None:
    rewards = judge(request("<answer>seven</answer>", "seven", "exact")).json()["rewards"]
    assert rewards["accuracy_reward"] == 1.0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(request("x", "", "mathverify"), "ground truth", id="no ground truth"),
        pytest.param(request("x", "[]", "detection"), "holds no boxes", id="no boxes in it"),
        pytest.param(request("x", "7", "mathverifier"), "unknown verifier", id="an unknown verifier"),
        pytest.param(request("x", "7", reward_verifier_parm="{"), "not JSON", id="no parameters"),
        pytest.param(request("x", "7", reward_verifier_parm="[]"), "not a JSON object", id="a list of them"),
        pytest.param(
            request("x", "7", "exact", parm={"tolerance": 1}), "no option `tolerance`", id="an unknown one"
        ),
        pytest.param(
            request("x", TRUCK, "detection", parm={"image_grid_thw": [3]}), "image_grid_thw", id="no grid"
        ),
        pytest.param(
            request("x", "7", "exact", format_ratio=0.0, accuracy_ratio=0.0), "no weights", id="no weights"
        ),
        pytest.param(
            json.dumps(request("x", "7", "exact", accuracy_ratio=float("inf"))),
            "Infinity",
            id="an endless weight",
        ),
        pytest.param(
            request("x", "7", "exact", format_ratio=1e308, accuracy_ratio=1e308),
            "no weights",
            id="huge weights",
        ),
        pytest.param(
            request("x", "7", reward_verifier_parm="[" * 100_000),
            "levels of lists",
            id="a deep list",
        ),
        pytest.param(
            request("x", TRUCK, "detection", reward_verifier_parm=f'{{"iou": {"[" * 900}{"]" * 900}}}'),
            "levels of lists",
            id="a deep option",
        ),
        pytest.param({"response": "x"}, "reward_verifier", id="keys that are missing"),
    ],
)
def test_an_unjudgeable_request_is_422_not_zero_as_in_the_published_server(body: Any, said: str) -> None:
    answer = judge(body)
    assert answer.status_code == 422
    assert said in answer.text
    assert "rewards" not in answer.json()


def test_a_stage_of_no_steps_is_422() -> None:
    body = request(boxes(0, 280, 1000, 1000), TRUCK, "detection", parm={"step": 0, "total_steps": 0})
    answer = judge(body, recipe(iou=STAGED))
    assert answer.status_code == 422
    assert "the request does not say how far along the staged IoU schedule is" in answer.text


def test_an_answer_that_no_judge_can_read_is_500() -> None:
    answer = judge(request("<answer>a mug</answer>", "a cup", "judge"))
    assert answer.status_code == 500
    assert "judge" in answer.json()["error"]["what"]
