"""What a tool call showed, judged from the question and the output alone (CodeV §4.3)."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from vtune.environments import DEFAULT, name_of
from vtune.errors import RecipeError, ServiceError
from vtune.judge.client import JudgeClient
from vtune.judge.confusion import HARMLESS, Confused, is_marked, spelt, unconfused
from vtune.judge.graders import compare
from vtune.judge.prompts import conclusion_prompt
from vtune.judge.replies import SAME_MARKS, read_same
from vtune.reward.evidence_judge import EVIDENCE, EvidenceJudge, EvidencePart, opened_judge
from vtune.reward.part import REWARDS, RewardPart, Scene, Unscored, unscored
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.schema.verdict import Verdict

NAME_ONE = "set `reward.judge`; a reward service uses only that of its --recipe"
"""The next step if a model would have to judge, but none is configured."""


class Judges:
    """The judge for each sample's calls: the first in the recipe that can judge it.

    The model also compares answers, for verifier `judge`, and checks them against their thoughts.

    Args:
        levels: Those of the recipe, with the names of its judges.
        client: Asks the model; None if there is no model.
        only: Use this judge alone, to compare it with another; None: those of the recipe.
    """

    def __init__(self, levels: EvidenceLevels, client: JudgeClient | None, only: str | None = None) -> None:
        self.levels = levels
        self._client = client
        self._names = levels.judges if only is None else (only,)
        self._opened: dict[str, EvidenceJudge] = {}

    def are(self, levels: EvidenceLevels, client: JudgeClient | None) -> bool:
        """Whether they were made from these settings."""
        return self.levels is levels and self._client is client

    def by(self, only: str | None) -> "Judges":
        """The same, with another choice of judges."""
        return Judges(self.levels, self._client, only)

    def of(self, sample: Sample) -> EvidenceJudge:
        """The judge for a sample's calls.

        Raises:
            RecipeError: If none of the recipe's judges can judge them.
        """
        name = self.who(sample)
        if name is None:
            parts = [EVIDENCE[name] for name in self._names]
            fix = NAME_ONE if any(part.asks_model for part in parts) else "let a model judge"
            raise RecipeError(", and ".join(part.lacking for part in parts), fix=fix)
        if name not in self._opened:
            self._opened[name] = opened_judge(name, self.levels, self._client)
        return self._opened[name]

    def who(self, sample: Sample) -> str | None:
        """The name of the judge of a sample's calls; None if no judge can."""
        return judge_of(sample, self._names, model=self._client is not None)

    async def same_answer(
        self, answer: str, sample: Sample, pictures: Sequence[Picture] = ()
    ) -> bool | Verdict | None:
        """Whether the model finds that an answer means the same as the ground truth; see `compare`.

        Raises:
            ServiceError: If the model cannot tell.
            RecipeError: If there is no model to ask.
        """
        return await compare(self._asked(), answer, sample, pictures)

    async def same_conclusion(self, thoughts: str, answer: str) -> bool:
        """Whether the model finds that the thoughts reach the conclusion that the answer gives.

        If the thoughts themselves keep the judge from telling, they reach none: see `unconfused`.

        Raises:
            ServiceError: If the model cannot tell.
            RecipeError: If there is no model to ask.
        """
        client = self._asked()
        texts = [(thoughts, answer)]
        if any(SAME_MARKS.search(text) for text in texts[0]):
            texts.append((spelt(thoughts, SAME_MARKS), spelt(answer, SAME_MARKS)))
        asks = [
            partial(client.ask_for, conclusion_prompt(*two), (), read_same, "TRUE or FALSE")
            for two in (*texts, (HARMLESS, HARMLESS))
        ]
        marked = any(is_marked(text, SAME_MARKS) for text in texts[0])
        try:
            return await unconfused(asks[:-1], control=asks[-1], marked=marked)
        except Confused:
            return False

    def _asked(self) -> JudgeClient:
        if self._client is None:
            raise RecipeError("this needs a judge, and the recipe has none", fix=NAME_ONE)
        return self._client


def judge_of(sample: Sample, names: Sequence[str], *, model: bool) -> str | None:
    """The first of some judges that can judge the calls of a sample; None if none can.

    Args:
        sample: What is asked.
        names: Names of the judges.
        model: Whether there is a model to ask.
    """
    return next((name for name in names if _can(EVIDENCE[name], sample, model)), None)


def _can(part: EvidencePart, sample: Sample, model: bool) -> bool:
    return (model or not part.asks_model) and part.judges(sample)


def needs_look(sample: Sample, levels: EvidenceLevels) -> bool:
    """Whether the question needs a look at a part of a picture.

    True if the sample has evidence boxes, its ability is one of `search_abilities`, or its source is one of
    `search_sources` (CodeV's code goes by the source). For all others the best policy is to skip tools
    (§4.3), so their calls earn nothing. Actions in any environment other than our tools are not looks.
    """
    return name_of(sample) == DEFAULT and (
        bool(sample.evidence)
        or sample.ability in levels.search_abilities
        or sample.source in levels.search_sources
    )


async def score_call(sample: Sample, trajectory: Trajectory, k: int, judges: Judges) -> Verdict:
    """The score of call `k`: the red-flag level if flagged; 0 if it is no look, was not seen, or none was
    needed; otherwise its judge's level.

    Args:
        sample: What was asked.
        trajectory: With the flags of its calls filled in.
        k: Number of the call.
        judges: Those of the reward.

    Raises:
        ServiceError: If it cannot be judged; the call is unscored.
        RecipeError: If none of the recipe's judges can judge it; the call is unscored.
    """
    call = trajectory.calls[k]
    if call.status == "infra":
        raise ServiceError(f"the sandbox failed: {call.error or 'no reason given'}")
    if call.flags:
        return Verdict(judges.levels.red_flag, f"red flag: {', '.join(call.flags)}")
    if not needs_look(sample, judges.levels):
        return Verdict(0.0, "no look needed")
    if call.unseen:
        return Verdict(0.0, "not seen: the conversation ended before")
    who = judges.who(sample)
    if not call.images and not (who is not None and EVIDENCE[who].reads_text):
        return Verdict(0.0, "no picture")
    verdict = await judges.of(sample).judge(sample, trajectory, k)
    return _turned(verdict, judges.levels) if _errs(sample, call, judges.levels.errs) else verdict


def _errs(sample: Sample, call: Call, share: float) -> bool:
    """Whether a judge with a given error rate errs here.

    Deterministic: the same look at the same question always gets the same level, as with a model at
    temperature 0.
    """
    look = f"{sample.id}\n{call.tool}\n{call.arguments}"  # a client may send half a surrogate pair
    drawn = hashlib.sha256(look.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(drawn[:8], "big") < share * 2**64


def _turned(verdict: Verdict, levels: EvidenceLevels) -> Verdict:
    """The opposite level: a miss for a full or partial look, a full look for a miss."""
    score = levels.miss if verdict.score > levels.miss else levels.full
    return Verdict(score, f"turned round by `evidence.errs`: {verdict.why}")


async def score_calls(scene: Scene, *, paid: bool) -> list[Verdict | Unscored]:
    """The score of each call of a trajectory.

    Args:
        scene: With the looks and flags of its calls filled in.
        paid: Whether the tool part has a weight; if not, no model is asked.

    Raises:
        DataError: If one of its pictures cannot be read.
    """
    sample, judges = scene.sample, scene.judges
    who = judges.who(sample)
    asks_model = needs_look(sample, judges.levels) and (who is None or EVIDENCE[who].asks_model)
    found: list[Verdict | Unscored] = []
    for k, call in enumerate(scene.trajectory.calls):
        if asks_model and not paid and not call.flags:
            found.append(Unscored("not asked: the tool part has no weight"))
            continue
        try:
            found.append(await score_call(sample, scene.trajectory, k, judges))
        except (ServiceError, RecipeError) as error:
            why = unscored(error)
            found.append(replace(why, again=why.again and call.status != "infra"))
    return found


def tool_part(calls: Sequence[Verdict | Unscored]) -> Verdict | Unscored:
    """The mean over the calls (CodeV eq. 6); 0 without a call, unscored if any call is."""
    if not calls:
        return Verdict(0.0, "no tool call")
    scores = []
    for k, call in enumerate(calls):
        if isinstance(call, Unscored):
            return replace(call, why=f"call {k}: {call.why}")
        scores.append(call.score)
    return Verdict(sum(scores) / len(scores), "; ".join(call.why for call in calls))


async def tool(weight: float, scene: Scene) -> Verdict | Unscored:
    """The tool part: what its tool calls showed; nothing in any environment other than our tools."""
    if scene.calls and name_of(scene.sample) != DEFAULT:
        return Verdict(0.0, "no looks, but acts in an environment")
    return tool_part(scene.calls)


REWARDS.add("tool", RewardPart(tool, low=-1.0, column=True))
