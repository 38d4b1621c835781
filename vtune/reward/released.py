"""`POST /judge` of V-Triune's published reward server: the same requests, judged by our verifiers.

The format of requests and replies is that server's (reward_server/reward_serving_fastapi.py), and so are the
weighting of the parts and the format score. Judging is left to the verifiers, whose docstrings say where they
are stricter than that server. A request that cannot be judged is an error here; that server answers with
zeros.
"""

import math
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from vtune.errors import DataError
from vtune.reward.body import parse_json
from vtune.reward.recipe import IouSchedule
from vtune.schema.message import IMAGE, Message
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import detection, grounding, verifier_of
from vtune.verifiers import math as math_verifier
from vtune.verifiers.boxes import boxes_in
from vtune.verifiers.detection import with_iou
from vtune.verifiers.tags import tagged

ACCURACY_RATIO, FORMAT_RATIO = 1.0, 0.1
"""The server's defaults."""

AVERAGE = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
"""The server's thresholds if its environment sets none: the score is the mean over them."""

MATHS, DETECTION = "mathverify", detection.NAME
"""The server's verifiers. Other names are those of `vtune.verifiers.VERIFIERS`."""

BOXES = (DETECTION, grounding.NAME)
"""Verifiers that read boxes."""

ABOUT_THE_RUN = ("is_training", "step", "total_steps", "image_path", "image_grid_thw", "verifier_style")
"""Keys that its client adds to `reward_verifier_parm`; the verifiers do not use them."""
ABOUT_BOXES = ("det_verifier_normalized", "det_reward_ratio")
"""Keys in every row of its data, whether about boxes or not."""

LINES = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
"""Its format reward for maths gives a quarter for each that occurs exactly once: eq. 2, with line breaks."""


class JudgeRequest(BaseModel):
    """A request as that server accepts it; other keys are ignored, as there."""

    response: str
    prompt: str
    answer: str
    solution: str
    data_source: str
    reward_verifier: str
    reward_verifier_parm: str
    format_ratio: float | None = None
    accuracy_ratio: float | None = None


def sample_of(request: JudgeRequest, iou: IouSchedule | None) -> Sample:
    """The sample that a request is about.

    Args:
        request: The request.
        iou: Schedule for box thresholds by the request's `step` and `total_steps`; None is the server's
            default, the mean over `AVERAGE`. Thresholds in the request itself (`iou`) take precedence.

    Raises:
        DataError: If the request contradicts itself, or names an unknown verifier.
    """
    parm = _object(request.reward_verifier_parm)
    name = request.reward_verifier
    foreign = ABOUT_THE_RUN if name in BOXES else ABOUT_THE_RUN + ABOUT_BOXES
    own = {key: value for key, value in parm.items() if key not in foreign}
    if name == MATHS:
        name, own = math_verifier.NAME, {"answer_in": "boxed"} | own
    if name == DETECTION and own.get("det_verifier_normalized"):
        own = _shown(parm.get("image_grid_thw")) | own
    sample = Sample(
        id="judge",
        source=request.data_source,
        prompt=(Message("user", request.prompt.replace(IMAGE, "")),),
        ground_truth=request.solution,
        answer=request.answer,
        verifier=name,
        verifier_parm=own,
    )
    if verifier_of(sample).reads_iou:
        return with_iou(sample, AVERAGE if iou is None else _thresholds(iou, parm))
    return sample


def rewards_of(request: JudgeRequest, verdict: Verdict) -> dict[str, float]:
    """The reply's `rewards`.

    Raises:
        DataError: If both ratios are 0.
    """
    accuracy_ratio = ACCURACY_RATIO if request.accuracy_ratio is None else request.accuracy_ratio
    format_ratio = FORMAT_RATIO if request.format_ratio is None else request.format_ratio
    total = accuracy_ratio + format_ratio
    if accuracy_ratio < 0 or format_ratio < 0 or not 0 < total < math.inf:
        raise DataError(
            f"accuracy_ratio {accuracy_ratio} and format_ratio {format_ratio} give no weights",
            fix="send finite shares of at least 0, one of them above it",
        )
    form = format_of(request)
    facts = {f"{name}_reward": value for name, value in verdict.parts.items()}
    return facts | {
        "format_reward": form,
        "accuracy_reward": verdict.score,
        "reflection_reward": 0.0,  # the server has this key but never fills it
        "final_reward": (verdict.score * accuracy_ratio + form * format_ratio) / total,
    }


def format_of(request: JudgeRequest) -> float:
    """The server's format reward: a fraction per tag, except for boxes, where it is all or nothing."""
    if request.reward_verifier != DETECTION:
        return 0.25 * sum(request.response.count(line) == 1 for line in LINES)
    if LINES[2] not in request.response or request.response.count(LINES[3]) != 1:
        return 0.0
    answer = tagged(request.response, "answer")
    return float(bool(answer and boxes_in(answer)))


def _object(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text.encode("utf-8", "surrogatepass"))
    except DataError as error:
        what = f"`reward_verifier_parm`: {error.what}"
        raise DataError(what, fix='send "{}" where it is empty') from None
    if not isinstance(value, dict):
        raise DataError("`reward_verifier_parm` is not a JSON object", fix='send "{}" where it is empty')
    return value


def _shown(grid: Any) -> dict[str, Any]:
    """Replies are in pixels of the picture as shown: (t, height, width) of the first picture, if given."""
    if not grid:
        return {}
    try:
        _, height, width = grid[0]
    except (TypeError, ValueError, KeyError, IndexError):
        what = "`image_grid_thw` is not a list of [t, height, width]"
        raise DataError(what, fix="send e.g. [[1, 420, 616]]") from None
    return {"reply_space": "shown_pixels", "shown_width": width, "shown_height": height}


def _thresholds(iou: IouSchedule, parm: dict[str, Any]) -> Sequence[float]:
    """The thresholds for a request. A stage still applies at exactly its share of the steps, as there."""
    step, steps = parm.get("step"), parm.get("total_steps")
    if iou.schedule in ("fixed", "average"):
        return iou.thresholds
    if iou.schedule == "adaptive" or not isinstance(step, int) or not isinstance(steps, int) or steps < 1:
        raise DataError(
            f"the request does not say how far along the {iou.schedule} IoU schedule is",
            fix="send `step` and `total_steps` (staged), or `iou`, in reward_verifier_parm",
        )
    return (iou.thresholds[sum(step / steps > share for share in iou.until)],)
