"""Two policies without a model: one does what its prompt asks, one writes what its cold start taught it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vtune.reward.combining import weights_of
from vtune.reward.format import form_of
from vtune.reward.recipe import RewardRecipe
from vtune.rollout.prompts import STYLES, Style, ask
from vtune.sandbox import image_names
from vtune.schema.message import Message
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers import verifier_of
from vtune.verifiers.answer_instruction import SENTENCES, Mark
from vtune.verifiers.detection import with_iou
from vtune.verifiers.perfect import TIGHTEST, perfect_reply
from vtune.verifiers.spaces import answers_in_shown_pixels, with_shown_size

DRAWS = 4
"""Draws from a prompt pool. A few are enough: no request in it omits a place that another one names."""
MARKS: tuple[Mark, ...] = tuple(SENTENCES)
UNKNOWING = "I see it."
"""The answer of a policy that never learnt the form of an answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a policy reads before its first turn, and the reply of a policy that knows the truth."""

    sample: Sample
    turns: tuple[Message, ...]
    reply: str
    tags: tuple[Mark, ...]
    """The tags that the reply uses."""


def asked(sample: Sample, style: Style, taught: Sequence[Trajectory]) -> list[Asked]:
    """A sample in a prompt style, with the reply of a policy that knows the truth and obeys.

    It writes the tags that its prompt names. It knows an answer format that cannot be guessed only if the
    prompt describes it. In the style `plain`, which adds nothing, it writes what the traces taught it.

    Args:
        sample: With the bytes of its pictures.
        style: `rollout.prompt`.
        taught: Traces of its cold start; empty if it had none.

    Returns:
        One entry, or several if a style draws its words at random.
    """
    data = [picture.data or b"" for picture in sample.images]
    sizes = [size_of(one) for one in data]
    shown = with_shown_size(sample, sizes[0]) if sizes and answers_in_shown_pixels(sample) else sample
    found = []
    for draw in range(DRAWS if STYLES[style].draws else 1):
        turns = ask(style, sample, image_names(data), sizes, draw=draw)
        prompt = "\n".join(turn.content for turn in turns)
        source = "\n".join(trace.reply for trace in taught) if STYLES[style].bare and taught else prompt
        tags = tuple(mark for mark in MARKS if mark in source)
        form = verifier_of(shown).form(shown)
        knows = not verifier_of(shown).self_contained or form in prompt or source is not prompt
        found.append(Asked(shown, turns, _written(_answer(shown) if knows else UNKNOWING, tags), tags))
    return found


def accuracy(one: Asked) -> Verdict:
    """The verifier's verdict on the reply, with boxes as tight as they get. Main thread only (`math`).

    Raises:
        DataError: If the ground truth, or an option of the verifier, cannot be read.
    """
    verifier = verifier_of(one.sample)
    sample = with_iou(one.sample, (TIGHTEST,)) if verifier.reads_iou else one.sample
    verifier.check_ground_truth(sample)
    return verifier.verify(one.reply, sample)


def form(one: Asked, reward: RewardRecipe) -> Verdict | None:
    """The verdict of the recipe's format rule on the reply; None if the sample gives format no weight."""
    if not weights_of(one.sample, reward).format:
        return None
    messages = (*one.turns, Message("assistant", one.reply))
    said = Trajectory(sample_id=one.sample.id, source=one.sample.source, messages=messages)
    return form_of(said, reward)


def _answer(sample: Sample) -> str:
    """The truth in the form that the verifier reads, without the tags around it."""
    parm = {**sample.verifier_parm, "answer_in": "reply"}
    return perfect_reply(replace(sample, verifier_parm=parm))


def _written(answer: str, tags: Sequence[Mark]) -> str:
    """Thoughts and an answer, in the given tags."""
    said = f"\\boxed{{{answer}}}" if "\\boxed" in tags and "\\boxed" not in answer else answer
    said = f"<answer>{said}</answer>" if "<answer>" in tags else said
    return f"<think>I look.</think>\n{said}" if "<think>" in tags else f"I look.\n\n{said}"
