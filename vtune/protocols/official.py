"""The scripts that a benchmark's authors publish with it.

V*'s own script compares the likelihoods of the options and needs no reply, so it has no rule here.
"""

from vtune.data.options import listing
from vtune.protocols import (
    PROTOCOLS,
    charxiv,
    charxiv_descriptive,
    mathverse,
    mathvision,
    mathvista,
    points,
    readings,
)
from vtune.protocols.detection import DETECTION
from vtune.protocols.lmms_eval import LETTER_REQUEST, grade_open
from vtune.protocols.mmmu import answered_after_mark, parsed_letter
from vtune.protocols.protocol import Grade, Protocol, Rule, chose, letters
from vtune.protocols.realworld import JOINED, graded, listed
from vtune.protocols.short_answers import OFFICIAL
from vtune.protocols.vlmevalkit import CHOICE, ask_realworld
from vtune.schema.sample import Sample

_PRO_REQUEST = "Answer with the option letter from the given choices directly."


def grade_realworld(text: str, sample: Sample) -> Grade:
    """MME-RealWorld: the first capital A to E, else the option that contains the answer."""
    return graded(text, sample, listed(sample).split("\n"), JOINED)


def ask_mmmu(question: str, sample: Sample) -> str:
    """MMMU (`configs/llava1.5.yaml`): options in parentheses, or a request for a word or phrase."""
    if not sample.choices:
        return f"{question}\n\nAnswer the question using a single word or phrase."
    return f"{question}\n\n{listed(sample)}\n\n\n{LETTER_REQUEST}"


def grade_mmmu(text: str, sample: Sample) -> Grade:
    """MMMU: `(A)`, then a letter between spaces, then an option's text; upstream picks one of k at random."""
    if not sample.choices:
        return grade_open(text, sample)
    letter = parsed_letter(text, sample.choices, forms=("({})", " {} "))
    return chose(letter, sample, at_random=1 / len(letters(sample)))


def ask_mmmu_pro(question: str, sample: Sample) -> str:
    """MMMU-Pro (`prompts.yaml`, direct)."""
    return f"{question}\n{listing(sample.choices)}\n{_PRO_REQUEST}"


def ask_mmmu_pro_vision(question: str, sample: Sample) -> str:
    """The same, with question and options in the picture."""
    return (
        f"{_PRO_REQUEST} The last line of your response should be of the following format: 'Answer: $LETTER' "
        "(without quotes) where LETTER is one of options."
    )


def grade_mmmu_pro(text: str, sample: Sample) -> Grade:
    """The only option letter after the last `Answer:`, else much as for MMMU, with its random choice."""
    letter = answered_after_mark(text, sample.choices)
    if letter is None:
        letter = parsed_letter(text, sample.choices, forms=("({})", "{} ", "{}."))
    return chose(letter, sample, at_random=1 / len(letters(sample)))


PROTOCOLS.add(
    "official",
    Protocol(
        about="The scripts of the benchmarks' authors, where they read replies",
        rules={
            "hrbench": CHOICE,  # its authors evaluate with a fork of VLMEvalKit
            "mme_realworld": Rule(ask=ask_realworld, grade=grade_realworld, scorer="levels"),
            "mmmu": Rule(ask=ask_mmmu, grade=grade_mmmu, scorer="categories"),
            "mmmu_pro": Rule(ask=ask_mmmu_pro, grade=grade_mmmu_pro, scorer="categories"),
            "mmmu_pro_vision": Rule(ask=ask_mmmu_pro_vision, grade=grade_mmmu_pro, scorer="categories"),
            "screenspot_pro": points.OFFICIAL,
            "coco_set": DETECTION,  # pycocotools is the authors' own
            "ovdeval": DETECTION,
            "ocrbench_v2": readings.OFFICIAL,
            **readings.MEGA_BENCH,
            "mathvista": mathvista.OFFICIAL,
            "mathverse": mathverse.OFFICIAL,
            "mathvision": mathvision.BOXED,  # asked in the words of lmms-eval, which uses the authors' rule
            "charxiv_reasoning": charxiv.RULE,
            "charxiv_descriptive": charxiv_descriptive.OFFICIAL,
            **OFFICIAL,
        },
    ),
)
