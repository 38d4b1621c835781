"""A question of each kind, as its reader makes it, for testing what protocols promise."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from vtune.data.options import listing
from vtune.protocols.short_answers import KINDS
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample
from vtune.verifiers import choice, counting, detection, exact, grounding, point_in_box, reading

SIGN = '[{"label": "sign", "bbox_2d": [20, 20, 70, 60]}]'
COLOURS = ("red", "green", "blue", "yellow", "none of these")


def _choice(count: int = 4, **extra: object) -> Sample:
    choices = COLOURS[:count]
    return Sample(
        id="check/0",
        source="check",
        prompt=(Message("user", f"{IMAGE}\nWhat is the colour of the sign?\n{listing(choices)}", (0,)),),
        images=(Picture(path="check.png"),),
        ground_truth="B",
        verifier=choice.NAME,
        choices=choices,
        extra={"category": "single", "cycle_category": "0", "l2-category": "sign", **extra},
    )


def _open(truth: str, verifier: str, *aliases: str, **extra: object) -> Sample:
    return Sample(
        id="check/0",
        source="check",
        prompt=(Message("user", f"{IMAGE}\nHow many signs are there?", (0,)),),
        images=(Picture(path="check.png"),),
        ground_truth=truth,
        verifier=verifier,
        verifier_parm={"aliases": list(aliases)} if aliases else {},
        extra={"category": "signs", **extra},
    )


def _place(verifier: str, **extra: object) -> Sample:
    """A white sign from (20, 20) to (70, 60) in a picture of 200 x 100 pixels."""
    sample = _open('[{"label": "", "bbox_2d": [20, 20, 70, 60]}]', verifier, **extra)
    parm = {"space": "pixels", "width": 200, "height": 100, "shown_width": 100, "shown_height": 50}
    one_box = {"iou": 0.5, "credit": "whole"} if verifier == grounding.NAME else {}
    return replace(sample, verifier_parm={**parm, **one_box})


def _detection() -> Sample:
    """The same sign, to be found by its name."""
    sample = _place(detection.NAME)
    return replace(sample, ground_truth=SIGN, verifier_parm={**sample.verifier_parm, "iou": 0.5})


def _maths(answer: str, *choices: str) -> Sample:
    """A question of MathVista, MathVerse or MathVision, as created by its reader."""
    listed = "".join(f"\n({letter}) {choice}" for letter, choice in zip("ABCD", choices, strict=False))
    text = "What is it?" + (f"\nChoices:{listed}" if choices else "")
    return Sample(
        id="check/0",
        source="check",
        prompt=(Message("user", f"{IMAGE}\n{text}", (0,)),),
        images=(Picture(path="check.png"),),
        ground_truth="ABCD"[choices.index(answer)] if choices else answer,
        answer=answer,
        verifier=choice.NAME if choices else exact.NAME,
        choices=choices,
        extra={
            "category": "signs",
            "facets": {"subject": "signs"},
            "query": text,
            "query_cot": f"Think first. {text}",
            "question": "What is it?",
            "question_for_eval": text,
            "answer_type": "text" if choices else "integer",
            "precision": None,
            "unit": "",
        },
    )


def _chart(answer: str) -> Sample:
    """A question of CharXiv."""
    query = f"* Ground Truth: {answer}\n* Response: {{PREDICTION}}"
    facets = {"category": "signs", "qid": "19"}
    return _open(answer, exact.NAME, facets=facets, query="How many?", grading_query=query)


SPECIMENS: Mapping[str, tuple[Sample, str]] = MappingProxyType(
    {
        "multiple_choice": (_choice(), "B"),
        "vstar": (_choice(), "B"),
        "hrbench": (_choice(), "B"),
        "treebench": (_choice(), "B"),
        "mme_realworld": (_choice(5, category="Perception/Signs"), "B"),
        "mmmu": (_choice(), "B"),
        "mmmu_pro": (_choice(5), "B"),
        "mmmu_pro_vision": (_choice(5), "B"),
        "vlmblind": (_open("3", exact.NAME, "{3}", task="Nested Squares"), "{3}"),
        "count": (_open("3", counting.NAME), "3"),
        "screenspot_pro": (
            _place(point_in_box.NAME, **{"instruction": "save", "l2-category": "icon"}),
            "(45, 40)",
        ),
        "refcoco": (_place(grounding.NAME, expression="white sign"), "[20, 20, 70, 60]"),
        "refcoco_tsv": (_place(grounding.NAME), "[20, 20, 70, 60]"),
        **dict.fromkeys(("coco_set", "ovdeval"), (_detection(), SIGN)),
        "ocrbench_v2": (_open('["3"]', reading.NAME, type="text recognition en"), "3"),
        "mathvista": (_maths("red", *COLOURS[:4]), "red"),
        "mathverse": (_maths("3"), "3"),
        "mathvision": (_maths("3"), "3"),
        "charxiv_reasoning": (_chart("3"), "3"),
        "charxiv_descriptive": (_chart("3"), "3"),
        **dict.fromkeys(KINDS, (_open("Gustave Eiffel", exact.NAME, "G. Eiffel"), "Gustave Eiffel")),
    }
)
"""Kind -> (a question, the right answer)."""

OTHER_FORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "screenspot_pro": ("[[0.225,0.4]]", "pyautogui.click(x=45, y=40)"),
        "refcoco": ("[0.1, 0.2, 0.35, 0.6]",),
        "refcoco_tsv": ("[0.1, 0.2, 0.35, 0.6]",),
    }
)
"""Kind -> the right answer in the forms required by protocols that read no other."""
