"""What an evidence judge is, and the table of those that exist."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
from pydantic import AfterValidator

from vtune.judge.client import JudgeClient
from vtune.parts import OURS
from vtune.registry import Parts
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.uses import awaited, defined, ill_made

if TYPE_CHECKING:
    from vtune.reward.recipe import EvidenceLevels


class EvidenceJudge(Protocol):
    """Judges what a call returned; shared by the reward and the faithfulness audit."""

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """The level of the pictures of call `k` (at least one). Red flags are handled elsewhere.

        Raises:
            ServiceError: If it cannot tell; the call is unscored.
            DataError: If a picture cannot be read; all calls of the trajectory are unscored.
        """
        ...

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool | None:
        """Whether a picture of call `k` clearly shows something that the question is about.

        None: no, and a judge that uses a model did not ask it, since by the rules the call is no look.

        Raises:
            ServiceError: If it cannot tell.
        """
        ...

    async def shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether a picture of call `k` shows all of a target, legible but too small for `shows_target`."""
        ...


@dataclass(frozen=True, slots=True)
class Example:
    """A question and two trajectories that answer it, for testing a judge."""

    sample: Sample
    gold: Trajectory
    """Its first call clearly shows what the question is about."""
    nothing: Trajectory
    """Its first call returns a picture that shows nothing of the target."""


@dataclass(frozen=True, slots=True)
class EvidencePart:
    """An evidence judge as recipes and runs use it."""

    about: str
    """What its judgement is based on, in one line."""
    opened: Callable[["EvidenceLevels", JudgeClient | None], EvidenceJudge]
    """(levels of the recipe, the model of `reward.judge`) -> the judge."""
    judges: Callable[[Sample], bool]
    """Whether it can judge the calls of a sample."""
    lacking: str
    """What is missing if it cannot, for messages: "no evidence boxes"."""
    asks_model: bool = False
    """Whether it asks the model of `reward.judge`: then it needs one, and judging costs calls."""
    reads_text: bool = False
    """Whether it judges the text that a call returns: then calls without a picture are judged, too."""
    reads: tuple[str, ...] = ()
    """Keys that it reads from a sample's `extra_info`; they are sent to a reward service."""
    example: Callable[[], Example] | None = None
    """What it is tested with; None: a sample with an evidence box, and crops on and beside it."""
    says: Callable[[str, bool], str] | None = None
    """(a question's text, whether its pictures show the target) -> the reply of the model of `reward.judge`
    when a judge that asks it is tested; None: the score of a look is not tested."""


AUTO, BOTH = "auto", "both"
"""Values of `vtune faithfulness --looks`: the judges of the recipe, or both of ours in turn."""

EVIDENCE: Parts[EvidencePart] = Parts(
    "evidence",
    lambda judge: judge.about,
    EvidencePart,
    taken=(AUTO, BOTH),
    calls=("opened(levels, client) -> EvidenceJudge", "judges(sample) -> bool"),
)
"""Name in `reward.evidence.judges` -> judge."""

JudgeName = Annotated[str, AfterValidator(EVIDENCE.known)]


class _Own:
    """A user's own judge: whether its methods are `async` is detected when they are called."""

    def __init__(self, name: str, judge: EvidenceJudge) -> None:
        self._part = (EVIDENCE.kind, name)
        self._own = judge

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        found: object = await awaited(self._part, self._own.judge, sample, trajectory, k)
        if isinstance(found, Verdict):
            return found
        what = f"`judge` returns {type(found).__name__}, not Verdict (sample {sample.id!r})"
        raise ill_made(self._part, what, "return Verdict(score, why)", defined(self._own.judge))

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool | None:
        found = await awaited(self._part, self._own.shows_target, sample, trajectory, k)
        return None if found is None else self._truth(found, self._own.shows_target, sample)

    async def shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        found = await awaited(self._part, self._own.shows_small, sample, trajectory, k)
        return self._truth(found, self._own.shows_small, sample)

    def _truth(self, found: object, by: Callable[..., Any], sample: Sample) -> bool:
        """An answer for the audit, where a text such as "no" would count as yes."""
        if isinstance(found, bool | np.bool_):
            return bool(found)
        what = f"`{by.__name__}` returns {found!r:.60} (sample {sample.id!r})"
        raise ill_made(self._part, what, "return True or False", defined(by))


def opened_judge(name: str, levels: "EvidenceLevels", client: JudgeClient | None) -> EvidenceJudge:
    """The judge with this name; `client` is the model of `reward.judge`, None if there is none."""
    judge = EVIDENCE[name].opened(levels, client)
    return judge if name in OURS[EVIDENCE.kind] else _Own(name, judge)
