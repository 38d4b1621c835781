"""A policy that knows the truth and does exactly what its prompt asks, and nothing else."""

import json
import re
from string import ascii_uppercase

from vtune.schema.box import Box
from vtune.schema.sample import Sample
from vtune.verifiers import verifier_of

TAGS = ("<think>", "<answer>", "\\boxed")


def obedient(prompt: str, sample: Sample, shown: tuple[int, int] = (1, 1)) -> str:
    """The reply to a prompt.

    Args:
        prompt: Everything that the policy reads before its first turn.
        sample: The sample whose truth it knows.
        shown: (width, height) of the first picture as the policy sees it, in pixels.
    """
    return replied(answer(prompt, sample, shown), [tag for tag in TAGS if tag in prompt])


def replied(said: str, tags: list[str]) -> str:
    """Thoughts and an answer in the given tags; only the answer if no tags are given."""
    if not tags:
        return said
    said = f"\\boxed{{{said}}}" if "\\boxed" in tags else said
    said = f"<answer>{said}</answer>" if "<answer>" in tags else said
    return f"<think>I see it.</think>\n{said}" if "<think>" in tags else f"I see it.\n\n{said}"


def answer(prompt: str, sample: Sample, shown: tuple[int, int]) -> str:
    """The truth in the form that a prompt asks for."""
    if sample.verifier == "choice":
        truth = sample.ground_truth
        return ascii_uppercase[sample.choices.index(truth)] if truth in sample.choices else truth
    if sample.verifier in ("reading", "mega_bench"):
        return verifier_of(sample).right(
            sample
        )  # one of several right answers, in the form that its metric expects
    if sample.verifier not in ("detection", "grounding", "point_in_box"):
        return sample.ground_truth
    width, height = _space(prompt, shown)
    boxes = [
        (label, (x0 * width, y0 * height, x1 * width, y1 * height))
        for label, (x0, y0, x1, y1) in _truth(sample)
    ]
    if "(x, y)" in prompt:
        x0, y0, x1, y1 = boxes[0][1]
        return f"({(x0 + x1) / 2:f}, {(y0 + y1) / 2:f})"
    if "bbox_2d" in prompt:
        return json.dumps([{"bbox_2d": box, "label": label} for label, box in boxes])
    return json.dumps([box for _, box in boxes])


def _space(prompt: str, shown: tuple[int, int]) -> tuple[float, float]:
    """The largest x and y of a reply; by default pixels as seen, as for Qwen2.5-VL."""
    if "from 0 to 1000" in prompt:
        return 1000.0, 1000.0
    size = re.search(r"pixels of the image, which is (\d+) wide and (\d+) high", prompt)
    return (float(size[1]), float(size[2])) if size else shown


def _truth(sample: Sample) -> list[tuple[str, Box]]:
    """Labels and boxes as shares of the picture."""
    parm = sample.verifier_parm
    thousandths = parm.get("space") == "relative_1000" or parm.get("det_verifier_normalized")
    width, height = (1000, 1000) if thousandths else (parm["width"], parm["height"])
    return [
        (entry["label"], (x0 / width, y0 / height, x1 / width, y1 / height))
        for entry in json.loads(sample.ground_truth)
        for x0, y0, x1, y1 in [entry["bbox_2d"]]
    ]
