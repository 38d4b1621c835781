"""What is seen in the text of replies alone: reflection, leaked placeholders, and a few of them to read."""

import re
from collections.abc import Sequence

from vtune.schema.trajectory import Trajectory

REFLECTIVE = (
    "re-check",
    "re-evaluate",
    "re-examine",
    "re-think",
    "recheck",
    "reevaluate",
    "reexamine",
    "rethink",
    "reevaluation",
    "check again",
    "think again",
    "try again",
    "verify",
    "wait",
    "yet",
)
"""The 15 words of V-Triune's appendix H."""

_REFLECTIVE = re.compile("|".join(map(re.escape, REFLECTIVE)))
_PLACEHOLDER = re.compile(r"<image>|<\|(?:image_pad|video_pad|vision_start|vision_end|vision_pad)\|>")


def reflects(reply: str) -> bool:
    """Whether a reply holds a reflective word, in any case, also inside another (as *yet* in *yeti*).

    Source: V-Triune, appendix H and eq. 4, which calls it a rough proxy; that words are looked for as mere
    strings is its code.
    """
    return _REFLECTIVE.search(reply.lower()) is not None


def leaks(reply: str) -> bool:
    """Whether a reply spells a placeholder of pictures, which only a prompt may hold (V-Triune, appendix B).

    The tokens themselves are banned from sampling; a policy can still write their names.
    """
    return _PLACEHOLDER.search(reply) is not None


def examples(trajectories: Sequence[Trajectory], *, each: int) -> list[Trajectory]:
    """Replies worth reading, of every source: evenly from its worst to its best reward, unscored ones last.

    Args:
        trajectories: Of one step.
        each: How many of a source, at most.
    """
    found = []
    for source in sorted({t.source for t in trajectories}):
        # Order of equals must not depend on who sampled first.
        group = sorted((t for t in trajectories if t.source == source), key=_rank)
        count = min(each, len(group))
        places = {round(number * (len(group) - 1) / max(count - 1, 1)) for number in range(count)}
        found += [group[place] for place in sorted(places)]
    return found


def _rank(trajectory: Trajectory) -> tuple[bool, float, str, int, int]:
    total = trajectory.reward.total if trajectory.reward is not None else None
    return (total is None, total or 0.0, trajectory.sample_id, trajectory.group, trajectory.rollout)
