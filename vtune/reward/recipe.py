"""The `reward` section of a recipe: everything that a run rewards.

Only keys that are newer than recipes in existing run folders have a default: what those recipes meant without
the key or, if that could be faked, what is safe.
"""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from vtune.judge.endpoint import BatchedEndpoint
from vtune.parts import OURS
from vtune.reward.evidence_judge import JudgeName
from vtune.reward.part import OwnParts, PartSection
from vtune.sections import Strict

RIGHT = 0.5
"""Accuracy from which an answer counts as right; ours: only boxes and readings with partial credit earn
anything between 0 and 1."""


Miss = Literal["miss", "red_flag"]
"""What a call that has not looked earns: the level with that name."""


JUDGES = tuple(OURS["evidence"])[:2]
"""Boxes if a sample has them, otherwise the model; other judges are used only if a recipe names them."""


def _are_ours(names: tuple[str, ...]) -> bool:
    return names == JUDGES


def _is_zero(share: float) -> bool:
    return share == 0


def _is_none(section: Strict | None) -> bool:
    return section is None


class EvidenceLevels(Strict):
    """What a tool call earns for what it shows, and the thresholds for showing it.

    The levels are CodeV's (template 13.2: 1, 0.5, 0.25; §4.3: red flags are negative). The box judge's
    thresholds are ours, since CodeV gives none. In them, *share* is how much of the target's box a crop shows
    (shared area / area of the box) and *size* is how large the target is in what the returned picture shows
    (`glimpses.py`; claimed looks: shared area / area of the crop), both in [0, 1].
    """

    full: float = Field(ge=0, le=1)
    """Clearly shows one target: share >= `full_share` and size >= `full_size`."""
    partial: float = Field(ge=0, le=1)
    """Shows part of a target, or shows it small: share >= `partial_share` and size >= `partial_size`."""
    miss: float = Field(ge=0, le=1)
    """Its pictures show no target. CodeV gives 0.25; 0 is possible. A call that returned no picture earns 0
    instead: template 13.2 speaks of pictures that do not match."""
    red_flag: float = Field(ge=-1, lt=0)
    """Any red flag, whatever else the call shows."""
    full_share: float = Field(gt=0, le=1)
    """0.75 works well: boxes are rarely exact to a quarter of their area, and the rest still identifies it.
    """
    full_size: float = Field(gt=0, le=1)
    """0.25 works well: a target half as wide and half as high as its crop is the crop's main content."""
    partial_share: float = Field(gt=0, le=1)
    """0.25 works well: anything less is a corner that cannot be recognised."""
    partial_size: float = Field(gt=0, le=1)
    """0.04 works well: a fifth of the crop in width and height; a smaller target is one in a cluttered crop
    (§4.3)."""
    target_share: float = Field(gt=0, le=1)
    """For faithfulness only, where the label is 1 or 0: a crop shows a target if share >= `target_share` and
    size >= `partial_size`. 0.5 works well: the crop shows more of the target than it cuts off."""
    whole_image_share: float = Field(gt=0, le=1)
    """A crop that covers at least this share of its picture, and is returned unchanged, is a whole-image crop
    (red flag). 0.9 works well; ours."""
    repeated_iou: float = Field(gt=0, le=1)
    """A crop that overlaps one of an earlier call by at least this IoU, shown no larger, repeats it (red
    flag). 0.95 works well; ours: rounding moves a box of 40 pixels no further."""
    looks: Literal["verified", "claimed"] = "verified"
    """`verified`: a region counts if the returned pixels agree with it, as the policy sees them (see
    `vtune.looks`). `claimed`: the session's word counts, which code can fake: for comparison only."""
    legible_side: float = Field(default=28.0, gt=0)
    """A target is legible from this many pixels per side on (the root of the area), as the policy sees it,
    even if the question's picture shows it as large. 28 is one visual token of Qwen2.5-VL."""
    most_of_input: float = Field(default=0.5, gt=0, le=1)
    """The regions of one call together are a look only if they cover at most this share of an input. 0.5
    works well; ours."""
    faked: Miss = "red_flag"
    """What a call earns if its pictures show nothing of the regions that it claims."""
    illegible: Miss = "miss"
    """What a call earns if it shows its regions with too few pixels to be read."""
    everything: Miss = "miss"
    """What a call earns if it shows more than `most_of_input`. A whole picture, unchanged, is `whole_image`.
    """
    judge_reads_output: bool = False
    """Whether a model judge is told what the call printed, and where its regions lie (CodeV §4.3: question,
    output, metadata). Printed text can lower a level but never raise it: the policy wrote it itself."""
    search_abilities: tuple[str, ...]
    """Abilities of samples whose questions need a look although they have no evidence boxes."""
    search_sources: tuple[str, ...]
    """Sources (`data_source`) of such samples: CodeV's code judges the calls of vstar, chart and high_res."""
    judges: Annotated[tuple[JudgeName, ...], Field(min_length=1, exclude_if=_are_ours)] = JUDGES
    """Who judges what a call shows: the first in the list that can judge the sample. A file under `uses` may
    add others."""

    errs: Annotated[float, Field(ge=0, le=1, exclude_if=_is_zero)] = 0.0
    """Share of the judged calls whose level is inverted, a look into a miss and a miss into a full look,
    chosen at random per call: what a judge with this error rate does to training. Red flags and faithfulness
    are unaffected. For experiments only."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.miss <= self.partial <= self.full:
            raise ValueError("the levels must rise: miss <= partial <= full")
        if self.partial_share > self.full_share or self.partial_size > self.full_size:
            raise ValueError("the thresholds of `partial` must not exceed those of `full`")
        return self


class IouSchedule(Strict):
    """How tightly boxes must fit, over the course of a run, to be rewarded (V-Triune eq. 3, ε)."""

    schedule: Literal["fixed", "average", "staged", "adaptive"]
    """`fixed`: one threshold. `average`: the mean of what several would give, the default of V-Triune's
    published server. `staged`: one after the other, by the share of training completed (§3.2.1). `adaptive`:
    one up or down after each step, to keep the share of successes near `target` (appendix I)."""
    thresholds: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(min_length=1)
    """IoU thresholds, rising. Staged: [0.85, 0.95, 0.99] in the paper, with a loose variant [0.7, 0.8, 0.85]
    and a strict one [0.9, 0.95, 0.99] (appendix J). Adaptive: 0.5 to 0.95 in steps of 0.05, and 0.99; a run
    starts at the first one."""
    until: tuple[Annotated[float, Field(gt=0, lt=1)], ...]
    """Staged: the share of the steps at which each stage but the last ends; [0.1, 0.25] in the paper.
    Otherwise empty."""
    target: float | None = Field(gt=0, lt=1)
    """Adaptive: the target share of replies whose boxes exceed the threshold, which rises above it and falls
    below it (τ; the paper tried 0.1 to 0.9). Otherwise null."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if list(self.thresholds) != sorted(set(self.thresholds)):
            raise ValueError("thresholds must rise")
        if list(self.until) != sorted(set(self.until)):
            raise ValueError("until must rise")
        if (self.schedule == "fixed") != (len(self.thresholds) == 1):
            raise ValueError("`fixed` has one threshold, every other schedule has several")
        stages = len(self.thresholds) - 1 if self.schedule == "staged" else 0
        if len(self.until) != stages:
            raise ValueError(f"`until` needs {stages} entries with this schedule and these thresholds")
        if (self.schedule == "adaptive") != (self.target is not None):
            raise ValueError("`target` belongs to the adaptive schedule, which needs one")
        return self


class Consistency(PartSection):
    """A reward for thoughts that lead to the answer: CodeV's table 2, "+ Consistency" (`consistency.py`)."""

    weight: float = Field(gt=0, le=1)
    """Thyme's code uses 0.5."""
    by: Literal["model", "text"]
    """`model`: the judge decides whether thoughts and answer draw the same conclusion, as in Thyme. `text`:
    the thoughts contain the answer, word for word; ours, for short answers without a judge."""


class Counterfactual(Strict):
    """A reward for using what was shown: a right answer changes when the look shows another target
    (`vtune/runs/train/counterfactual.py`). Ours.
    """

    weight: float = Field(gt=0, le=1)
    """Weight of the part, which is 1 or 0."""
    share: float = Field(gt=0, le=1)
    """Share of the groups, chosen at random; in the others nothing is regenerated, and this part earns
    nothing."""


class RewardService(Strict):
    """Servers that score in place of this process (`vtune serve rewards`); a bare list of URLs also works."""

    urls: tuple[str, ...] = Field(min_length=1)
    """E.g. http://10.0.0.5:8192; all are used, and any of them can replace any other."""
    token_env: str | None = None
    """Name of the environment variable that holds their token; null if they need none."""
    deadline_s: float = Field(default=120.0, gt=0)
    """Seconds that a trajectory may wait for its score, retries and other servers included; then it is
    unscored. Ours: four times what a worker may take."""

    @field_validator("urls")
    @classmethod
    def _are_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if (why := _unusable(url)) is not None:
                raise ValueError(f"{why}: write http://HOST:PORT")
        urls = tuple(url.rstrip("/") for url in urls)
        if len(set(urls)) < len(urls):
            raise ValueError("a URL is listed twice")
        return urls


def _unusable(url: str) -> str | None:
    """Why no request can be sent to a URL; None where one can. A password in it is not repeated."""
    if not url.startswith(("http://", "https://")):
        return f"{url!r} is not a URL"
    if "@" in url:
        return "a URL holds a user or an @ (`token_env` names the variable of a token, %40 is an @ in a path)"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as the look-up of its address does
    except ValueError as error:  # a UnicodeError too
        return f"{url!r} has no usable host or port ({error})"
    if not host or port == 0:
        return f"{url!r} has no usable host or port"
    if not re.fullmatch("[!-~]+", url):
        return f"{url!r} holds a space or a character that is not ASCII (%XX in paths, xn--… in hosts)"
    if "?" in url or "#" in url:
        return f"{url!r} holds a query or a fragment, but `/score` is added at its end"
    return None


def _has_none(parts: OwnParts) -> bool:
    return not parts.given


def _from_list(value: Any) -> Any:
    if isinstance(value, str):
        value = [value]
    return {"urls": value} if isinstance(value, list | tuple) else value


class RewardRecipe(Strict):
    """How verdicts become one number: R = accuracy·r_acc + format·r_format + tool·r_tool (CodeV eq. 5).

    `consistency` and `counterfactual` add two more parts, and `parts` adds the user's own.
    """

    accuracy: float = Field(ge=0, le=1)
    """Weight of the answer."""
    format: float = Field(ge=0, le=1)
    """Weight of the format part: well-formed tags."""
    tool: float = Field(ge=0, le=1)
    """Weight of the evidence reward. CodeV keeps it below `accuracy`, so that the answer stays dominant."""
    tool_gated: bool
    """Whether a positive tool part counts only if the answer is right (accuracy >= 0.5). A negative one, from
    red flags, always counts: a wrong answer does not excuse them."""
    weighting: Literal["recipe", "sample", "sample_normalised"]
    """`recipe`: the three weights above hold for all samples. `sample`: each sample's own accuracy_ratio,
    format_ratio and tool_ratio are used instead (V-Triune §3.2: not divided by their sum).
    `sample_normalised`: the same, divided by their sum, as in V-Triune's published server. Further parts
    always use their own weights, for all samples and without normalisation."""
    max_unscored: float = Field(ge=0, le=1)
    """The run stops if a larger share of a step's trajectories is unscored."""
    evidence: EvidenceLevels
    judge: BatchedEndpoint | None
    """Judges what calls show if a sample has no evidence boxes, and the answers of verifier `judge`; null if
    neither is needed."""
    format_rule: Literal["ordered", "counted"] = "ordered"
    """`ordered`: every turn has its tags, in order; thoughts are in one `<think>` around all code, as CodeV's
    template 13.1 asks, or in one per turn (see `format_reward`). `counted`: a quarter for each of four tags
    that occurs exactly once (V-Triune eq. 2; see `counted_tags`)."""
    iou: IouSchedule | None = None
    """For verifiers `detection` and `grounding`; null if no sample has one, or if all specify `iou`
    themselves."""
    consistency: Consistency | None = None
    """Null: whether thoughts and answer agree is not checked."""
    counterfactual: Annotated[Counterfactual | None, Field(exclude_if=_is_none)] = None
    """Null: whether a right answer uses what was shown is not checked. For training only: it regenerates a
    turn."""
    parts: Annotated[OwnParts, Field(exclude_if=_has_none)] = OwnParts()
    """Further parts from files under `uses`: name -> `weight`, and any other settings of the part."""
    service: Annotated[RewardService | None, BeforeValidator(_from_list)] = None
    """Who scores; null: this process. It does not change any score, so a recipe may omit it."""

    @property
    def asks_in_batches(self) -> bool:
        """Whether its judge is asked in batches: what needs the judge has no score until all rollouts are
        generated.
        """
        return self.judge is not None and self.judge.batch

    @model_validator(mode="after")
    def _who_asks_in_batches_asks_itself(self) -> Self:
        if self.service is not None and self.asks_in_batches:
            raise ValueError("`judge.batch`: a service asks its own judge, one question after the other")
        return self

    @model_validator(mode="after")
    def _consistency_can_be_judged(self) -> Self:
        if self.consistency is not None and self.consistency.by == "model" and self.judge is None:
            raise ValueError("`consistency` by a model needs one: set `judge`, or `consistency.by` to text")
        return self
