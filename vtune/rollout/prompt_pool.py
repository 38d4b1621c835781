r"""A pool of phrasings for the same request, so that no single wording decides (V-Triune, appendix B).

V-Triune found that reasoning varies with the wording of what follows a question, and samples it for each
prompt: one of ten ways to ask for thoughts and one of ten to say where the answer goes. The sentences are
ours: its code has many, and the paper prints none.
"""

import random
from collections.abc import Collection

from vtune.verifiers.answer_instruction import Mark

THINK = (
    "Let's think step by step.",
    "Think it through step by step before you answer.",
    "Reason carefully, one step after the other.",
    "Work out the answer step by step.",
    "Take the problem apart and solve it step by step.",
    "First lay out your reasoning in order.",
    "Consider what the picture shows, then reason step by step.",
    "Explain each step that leads you to the answer.",
    "Go through the problem one step at a time.",
    "Show your reasoning before you conclude.",
)

BOXED = (
    r"Put your final answer in \boxed{}.",
    r"Place the final answer inside \boxed{}.",
    r"Write the final answer within \boxed{}.",
    r"Give the final answer as \boxed{}.",
    r"End with the final answer in \boxed{}.",
    r"Enclose the final answer in \boxed{}.",
    r"State the final answer in \boxed{}.",
    r"Your final answer belongs in \boxed{}.",
    r"Finish with your answer inside \boxed{}.",
    r"Wrap the final answer in \boxed{}.",
)
"""For samples whose answer is expected in a box (`answer_in: boxed`)."""

TAGGED = (
    "Think inside <think> and </think>, then give the final answer inside <answer> and </answer>.",
    "Put your reasoning between <think> and </think> and the final answer between <answer> and </answer>.",
    "Write your thoughts in <think> </think> and your final answer in <answer> </answer>.",
    "Enclose the reasoning in <think> </think> and the answer in <answer> </answer>.",
    "Use <think> </think> for the reasoning, then <answer> </answer> for the final answer.",
    "Reason within <think> </think>; finish with the answer within <answer> </answer>.",
    "First <think> your reasoning </think>, then <answer> your final answer </answer>.",
    "Place your thoughts inside <think> </think> and end with <answer> your answer </answer>.",
    "The reasoning goes into <think> </think>, the final answer into <answer> </answer>.",
    "Reply with <think> your reasoning </think> followed by <answer> your answer </answer>.",
)
"""For all others, whose answer is expected in tags, and for rewards on tags."""


def pool_suffix(missing: Collection[Mark], *, draw: int) -> str:
    """What is appended to a question; empty if the question itself says where its answer goes.

    Args:
        missing: What the question does not mention yet (see `vtune.verifiers.answer_instruction`).
        draw: Chooses the sentences: the same number gives the same sentences.
    """
    if not missing:
        return ""
    rng = random.Random(draw)
    think, tagged, boxed = (rng.choice(pool) for pool in (THINK, TAGGED, BOXED))
    places = [tagged] if "<answer>" in missing or "<think>" in missing else []
    places += [boxed] if "\\boxed" in missing else []
    return "\n\n" + " ".join([think, *places])
