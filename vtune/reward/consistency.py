"""Do the thoughts lead to the answer? A reward that CodeV tried and did not adopt."""

import re

from vtune.reward.evidence import Judges
from vtune.reward.part import REWARDS, RewardPart, Scene, Unscored
from vtune.reward.recipe import RIGHT, Consistency
from vtune.schema.verdict import Verdict
from vtune.verifiers import tags

LAST = 500
"""How many characters at the end of the thoughts are compared with the answer (Thyme's code)."""

_MARKS = re.compile(r"</?think(?:ing)?>")


async def score_consistency(reply: str, accuracy: float, recipe: Consistency, judges: Judges) -> Verdict:
    """Score 1 if the answer is right and the end of the thoughts draws the same conclusion, else 0.

    Only right answers are checked: wrong ones earn nothing whatever the thoughts say, so the policy is not
    rewarded for mere self-agreement. The question and its pictures are not considered.

    Args:
        reply: Everything that the policy wrote; its thoughts end at the last `</think>` or `</thinking>`.
            Without thoughts, or without an answer after them, it scores 0: that is the model's mistake.
        accuracy: Score of the answer, in [0, 1].
        recipe: Says how consistency is judged.
        judges: Those of the reward.

    Raises:
        ServiceError: If the judge cannot tell; the part is then unscored.

    Source: CodeV §5.4 and table 2 ("+ Consistency") say "similar as" Thyme and give no formula; this follows
    Thyme's code (Zhang et al. 2025): weight, criterion, `LAST`, and 0 for a wrong answer. The judge's
    prompt is ours.
    """
    if accuracy < RIGHT:
        return Verdict(0.0, "the answer is wrong")
    thoughts = _MARKS.sub("", reply[: tags.thoughts_end(reply)]).strip()[-LAST:]
    answer = tags.said(reply)
    if not thoughts or answer is None:
        return Verdict(0.0, "no thoughts in front of an answer")
    if recipe.by == "text":
        found = re.search(rf"(?<!\w){re.escape(answer.casefold())}(?!\w)", thoughts.casefold())
        return Verdict(float(found is not None), "named in the thoughts" if found else "not named in them")
    same = await judges.same_conclusion(thoughts, answer)
    return Verdict(float(same), "the same conclusion" if same else "another conclusion")


async def consistency(asked: Consistency, scene: Scene) -> Verdict | Unscored:
    """The consistency part: whether thoughts and answer agree."""
    accuracy = scene.found["accuracy"]
    if isinstance(accuracy, Unscored):
        return Unscored("the answer is unscored")
    return await score_consistency(scene.trajectory.reply, accuracy.score, asked, scene.judges)


REWARDS.add(
    "consistency",
    RewardPart(
        consistency,
        section=Consistency,
        column=True,
        example={"by": "model"},
        replies=("<think>It is red.</think><answer>B</answer>",),
        says=lambda text: "TRUE" if "It is blue" in text else "FALSE",
    ),
)
