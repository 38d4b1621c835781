"""What the policies of two evaluations saw of the same questions: texts, orders, sizes of pictures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

AROUND = 60
"""Characters of an example shown on each side of the first difference; ours."""

Turn = tuple[str, str]
"""(role, text)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a policy was shown for a question before it wrote anything."""

    prompt: tuple[Turn, ...]
    sizes: tuple[tuple[int, int] | None, ...]
    """Sizes of the question's pictures, as the policy saw them; None if not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Ids of the questions that were shown differently."""

    prompt: tuple[str, ...]
    """Those whose text differs, apart from the order of options."""
    order: tuple[str, ...]
    pixels: tuple[str, ...]
    sizes_known: bool
    """Whether both evaluations stored all sizes."""
    example: Mapping[str, str] | None
    """`id` of the first question in `prompt`, and both texts (`ours`, `theirs`) around the difference."""


def asked_of(trajectories: Iterable[Trajectory]) -> dict[str, Asked]:
    """Question id -> what was shown for it; all rollouts are shown the same."""
    found: dict[str, Asked] = {}
    for trajectory in trajectories:
        if trajectory.sample_id in found or not trajectory.messages:
            continue
        prompt: list[Turn] = []
        for message in trajectory.messages:
            if message.role == "assistant":
                break
            prompt.append((message.role, message.content))
        sizes = tuple(picture.seen for picture in trajectory.images if picture.origin == "input")
        found[trajectory.sample_id] = Asked(prompt=tuple(prompt), sizes=sizes)
    return found


def differences(
    ours: Mapping[str, Asked],
    theirs: Mapping[str, Asked],
    samples: Mapping[str, Sample],
    suites: tuple[EvalSuite, EvalSuite],
) -> Differences:
    """Compare what was shown in two evaluations.

    The order of options changes a prompt, too. So if it differs, their question is rebuilt with our order and
    replaces the original in their prompt.

    Args:
        ours: Id -> what was shown.
        theirs: The same for the other evaluation.
        samples: Id -> our question as asked.
        suites: Ours and theirs, on the same data.
    """
    mine, other = suites
    here = {sample.id: sample for sample in read_records(other)}
    common = [name for name in ours if name in theirs and name in here]
    order = tuple(name for name in common if samples[name].choices != here[name].choices)
    turned = _turned(mine, other) if order else {}
    moved = set(order)
    texts = {
        name: _with(theirs[name], here[name], turned[name]) if name in moved else theirs[name].prompt
        for name in common
    }
    prompt = tuple(name for name in common if ours[name].prompt != texts[name])
    return Differences(
        prompt=prompt,
        order=order,
        pixels=tuple(name for name in common if ours[name].sizes != theirs[name].sizes),
        sizes_known=all(None not in one[name].sizes for one in (ours, theirs) for name in common),
        example=example(prompt[0], ours[prompt[0]].prompt, texts[prompt[0]]) if prompt else None,
    )


def _turned(ours: EvalSuite, theirs: EvalSuite) -> dict[str, Sample]:
    """Their questions with our order of options."""
    if ours.choices is None or theirs.choices is None:
        return {sample.id: sample for sample in read_records(theirs)}
    choices = theirs.choices.model_copy(update={"order": ours.choices.order})
    return {sample.id: sample for sample in read_records(theirs.model_copy(update={"choices": choices}))}


def _with(asked: Asked, before: Sample, after: Sample) -> tuple[Turn, ...]:
    """The turns that were shown, with the question replaced by a version of it."""
    old, new = before.prompt[-1].content, after.prompt[-1].content
    return tuple((role, text.replace(old, new) if role == "user" else text) for role, text in asked.prompt)


def example(name: str, ours: tuple[Turn, ...], theirs: tuple[Turn, ...]) -> dict[str, str]:
    """`id` of a question, and both texts around the first difference: `ours` and `theirs`."""
    mine, other = ("\n".join(text for _, text in one) for one in (ours, theirs))
    ends = min(len(mine), len(other))
    at = next((place for place in range(ends) if mine[place] != other[place]), ends)
    start = max(0, at - AROUND)
    return {"id": name, "ours": mine[start : at + AROUND], "theirs": other[start : at + AROUND]}
