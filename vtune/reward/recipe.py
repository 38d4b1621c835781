"""The `reward` section of a recipe: everything that a run rewards.

Only keys that are younger than recipes in run folders have a default: what these meant without them, or,
where that could be faked, what is safe.
"""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from vtune.config import Strict
from vtune.judge.endpoint import BatchedEndpoint
from vtune.parts import OURS
from vtune.reward.evidence_judge import JudgeName
from vtune.reward.part import OwnParts, PartSection

RIGHT = 0.5
"""Accuracy from which on an answer counts as right; ours: only boxes and partly credited readings earn
anything between 0 and 1."""


Miss = Literal["miss", "red_flag"]
"""What a call earns that has not looked: the level of that name."""


JUDGES = tuple(OURS["evidence"])[:2]
"""Boxes where a sample has them, else the model; others are asked by name."""


def _are_ours(names: tuple[str, ...]) -> bool:
    return names == JUDGES


def _is_zero(share: float) -> bool:
    return share == 0


def _is_none(section: Strict | None) -> bool:
    return section is None


class EvidenceLevels(Strict):
    """What a tool call earns for what it shows, and from where on it shows it.

    The levels are CodeV's (template 13.2: 1, 0.5, 0.25; §4.3: red flags are negative). The thresholds of the
    box judge are ours, for CodeV gives none. In them, *share* is how much of the target's box a crop shows
    (shared area / area of the box) and *size* is how large the target is in what the returned picture shows
    (`glimpses.py`; claimed looks: shared area / area of the crop), both in [0, 1].
    """

    full: float = Field(ge=0, le=1)
    """Clearly shows one target: share >= `full_share` and size >= `full_size`."""
    partial: float = Field(ge=0, le=1)
    """Shows part of one, or shows it small: share >= `partial_share` and size >= `partial_size`."""
    miss: float = Field(ge=0, le=1)
    """Its pictures show no target. CodeV pays 0.25; 0 is possible. A call that returned no picture earns 0
    and not this: template 13.2 speaks of pictures that do not match."""
    red_flag: float = Field(ge=-1, lt=0)
    """Any red flag, whatever else the call shows."""
    full_share: float = Field(gt=0, le=1)
    """0.75 suits: boxes are rarely exact to a quarter of their area, and the rest still identifies it."""
    full_size: float = Field(gt=0, le=1)
    """0.25 suits: a target half as wide and half as high as its crop is the main content of it."""
    partial_share: float = Field(gt=0, le=1)
    """0.25 suits: less is a corner that cannot be recognised."""
    partial_size: float = Field(gt=0, le=1)
    """0.04 suits: a fifth of the crop in width and height; smaller is a target in a cluttered crop (§4.3)."""
    target_share: float = Field(gt=0, le=1)
    """For faithfulness only, where the label is 1 or 0: a crop shows a target if share >= `target_share` and
    size >= `partial_size`. 0.5 suits: the crop holds more of the target than it cuts off."""
    whole_image_share: float = Field(gt=0, le=1)
    """A crop that covers this much of its picture, and is returned unchanged, is a whole-image crop (red
    flag). 0.9 suits, ours."""
    repeated_iou: float = Field(gt=0, le=1)
    """A crop that overlaps one of an earlier call by this IoU, shown no larger, repeats it (red flag). 0.95
    suits, ours: rounding moves a box of 40 pixels no further."""
    looks: Literal["verified", "claimed"] = "verified"
    """`verified`: a region counts where the returned pixels agree with it, as the policy sees them (see
    `vtune.looks`). `claimed`: the word of the session counts, which code can fake: for comparison only."""
    legible_side: float = Field(default=28.0, gt=0)
    """Pixels per side (the root of the area), as the policy sees it, from which on a target is legible though
    the question's picture shows it as large. 28 is one visual token of Qwen2.5-VL."""
    most_of_input: float = Field(default=0.5, gt=0, le=1)
    """The regions of one call together are a look only while they cover no more of an input. 0.5 suits,
    ours."""
    faked: Miss = "red_flag"
    """What a call earns whose pictures show nothing of the regions that it claims."""
    illegible: Miss = "miss"
    """What a call earns that shows its regions with too few pixels to be read."""
    everything: Miss = "miss"
    """What a call earns that shows more than `most_of_input`. Unchanged and all of it is `whole_image`."""
    judge_reads_output: bool = False
    """Whether a model judge is told what the call printed, and where its regions lie (CodeV §4.3: question,
    output, metadata). A print can lower a level, and never raise it: it is the policy's own writing."""
    search_abilities: tuple[str, ...]
    """Abilities of samples whose questions need a look although they carry no evidence boxes."""
    search_sources: tuple[str, ...]
    """Sources (`data_source`) of such samples: CodeV's code judges the calls of vstar, chart and high_res."""
    judges: Annotated[tuple[JudgeName, ...], Field(min_length=1, exclude_if=_are_ours)] = JUDGES
    """Who says what a call shows: the first of them that can judge the sample. A file under `uses` may bring
    another."""

    errs: Annotated[float, Field(ge=0, le=1, exclude_if=_is_zero)] = 0.0
    """Share of the judged calls whose level is turned round, a look into a miss and a miss into a full look,
    drawn for each call: what a judge that errs so often does to training. Red flags and faithfulness are not
    drawn. For experiments only."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.miss <= self.partial <= self.full:
            raise ValueError("the levels must rise: miss <= partial <= full")
        if self.partial_share > self.full_share or self.partial_size > self.full_size:
            raise ValueError("the thresholds of `partial` must not exceed those of `full`")
        return self


class IouSchedule(Strict):
    """How tightly boxes have to fit, in the course of a run, for their overlap to pay (V-Triune eq. 3, ε)."""

    schedule: Literal["fixed", "average", "staged", "adaptive"]
    """`fixed`: one threshold. `average`: the mean of what several would give, as V-Triune's published
    server does by default. `staged`: one after the other, by the share of training that is done (§3.2.1).
    `adaptive`: one up or down after each step, so that the share of successes nears `target` (appendix I)."""
    thresholds: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(min_length=1)
    """IoU, rising. Staged, the paper has [0.85, 0.95, 0.99], its loose variant [0.7, 0.8, 0.85] and its
    strict one [0.9, 0.95, 0.99] (appendix J). Adaptive, 0.5 to 0.95 by 0.05, and 0.99; the first is where
    it begins."""
    until: tuple[Annotated[float, Field(gt=0, lt=1)], ...]
    """Staged: the share of the steps at which each stage but the last ends; the paper has [0.1, 0.25]. Else
    empty."""
    target: float | None = Field(gt=0, lt=1)
    """Adaptive: the share of replies whose boxes exceed the threshold, above which it rises and below
    which it falls (τ; the paper tried 0.1 to 0.9). Else null."""

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
    """Thyme's code has 0.5."""
    by: Literal["model", "text"]
    """`model`: the judge says whether thoughts and answer draw the same conclusion, as Thyme's does. `text`:
    the answer stands in the thoughts, word for word; ours, for short answers where there is no judge."""


class Counterfactual(Strict):
    """A reward for using what was shown: with another target in the place of the look a right answer changes
    (`vtune/runs/train/counterfactual.py`). Ours.
    """

    weight: float = Field(gt=0, le=1)
    """Of the part, which is 1 or 0."""
    share: float = Field(gt=0, le=1)
    """Of the groups, drawn by chance: in the others nothing is drawn again, and nothing is paid."""


class RewardService(Strict):
    """Servers that score instead of this process (`vtune serve rewards`); a bare list of URLs will do."""

    urls: tuple[str, ...] = Field(min_length=1)
    """E.g. http://10.0.0.5:8192; all are asked, and any can stand in for any other."""
    token_env: str | None = None
    """Name of the environment variable that holds their token; null where they want none."""
    deadline_s: float = Field(default=120.0, gt=0)
    """How long a trajectory may wait for its score, in seconds, other servers and attempts included; then it
    is unscored. Ours: four times what a worker may take."""

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

    With `consistency` and `counterfactual` there are two more parts, and `parts` are the user's own.
    """

    accuracy: float = Field(ge=0, le=1)
    """Weight of the answer."""
    format: float = Field(ge=0, le=1)
    """Weight of well-formed tags."""
    tool: float = Field(ge=0, le=1)
    """Weight of the evidence reward. CodeV keeps it below `accuracy`, so that the answer stays dominant."""
    tool_gated: bool
    """Whether a positive tool part is paid only where the answer is right (accuracy >= 0.5). A negative one,
    from red flags, always counts: a wrong answer is not a licence for them."""
    weighting: Literal["recipe", "sample", "sample_normalised"]
    """`recipe`: the three weights above hold for all samples. `sample`: each sample's own accuracy_ratio,
    format_ratio and tool_ratio do (V-Triune §3.2: not divided by their sum), and those above do nothing.
    `sample_normalised`: the same, divided by their sum, as V-Triune's published server does. Further parts
    have weights of their own, which hold for all samples and are divided by nothing."""
    max_unscored: float = Field(ge=0, le=1)
    """The run stops when a larger share of a step's trajectories is unscored."""
    evidence: EvidenceLevels
    judge: BatchedEndpoint | None
    """Judges what calls show where a sample has no evidence boxes, and the answers of verifier `judge`;
    null where neither is needed."""
    format_rule: Literal["ordered", "counted"] = "ordered"
    """`ordered`: every turn has its tags, in order; thoughts stand in one `<think>` around all code, as
    CodeV's template 13.1 asks, or in one of each turn (see `format_reward`). `counted`: a quarter for each of
    four tags that stands once (V-Triune eq. 2; see `counted_tags`)."""
    iou: IouSchedule | None = None
    """For verifiers `detection` and `grounding`; null where no sample has one, or all state `iou`
    themselves."""
    consistency: Consistency | None = None
    """Null: whether thoughts and answer agree is not asked."""
    counterfactual: Annotated[Counterfactual | None, Field(exclude_if=_is_none)] = None
    """Null: whether a right answer uses what was shown is not asked. Of training alone: it draws a turn."""
    parts: Annotated[OwnParts, Field(exclude_if=_has_none)] = OwnParts()
    """Further parts, which files under `uses` bring: name -> `weight`, and what else it reads."""
    service: Annotated[RewardService | None, BeforeValidator(_from_list)] = None
    """Who scores; null: this process. It changes no score, so a recipe may leave it out."""

    @property
    def asks_in_batches(self) -> bool:
        """Whether its judge is asked in batches: what needs it has no score before all is drawn."""
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
