"""MathVerse: one model call extracts the answer from a reply, another compares it with the truth.

Source: MathVerse's `extract_answer.py` and `score_answer.py`; VLMEvalKit e8e78f05, `utils/mathverse.py`;
lmms-eval 75571cfe, `mathverse/mathverse_evals.py`, which compares directly. The only rule without a model
is that an identical text is right.
"""

from dataclasses import replace

from vtune.protocols.protocol import Grade, Judging, Rule, said
from vtune.protocols.readers import COMPARE, EXTRACT, compare, extract
from vtune.schema.sample import Sample


def ask_cot(question: str, sample: Sample) -> str:
    """The query that asks for reasoning first, as in the paper's main table."""
    return str(sample.extra["query_cot"])


def ask_directly(question: str, sample: Sample) -> str:
    """The query that asks for the answer directly."""
    return str(sample.extra["query"])


def ask_question(question: str, sample: Sample) -> str:
    """VLMEvalKit: only the question; if only the picture contains it, the query that says so."""
    return str(sample.extra["question"]).strip() or str(sample.extra["query"])


def grade_alone(text: str, sample: Sample) -> Grade:
    """Without a model: an identical text is right, anything else is undecided."""
    text = text.strip()
    return said(text if text and text == sample.ground_truth.strip() else None, right=True)


def judge_twice(text: str, sample: Sample) -> Judging:
    """Extracted, then compared unless the text is identical."""
    if not text.strip():
        return said(None, right=False)
    found = yield extract(str(sample.extra["question_for_eval"]), text)
    if not found:
        return said(None, right=False)
    if found == sample.ground_truth.strip():
        return said(found, right=True)
    right = yield compare(str(sample.extra["question_for_eval"]), sample.ground_truth, found)
    return said(found, right)


def judge_once(text: str, sample: Sample) -> Judging:
    """lmms-eval: compared without extraction."""
    if not text.strip():
        return said(None, right=False)
    right = yield compare(str(sample.extra["question_for_eval"]), sample.ground_truth, text)
    return said(text, right)


OFFICIAL = Rule(
    ask=ask_cot,
    grade=grade_alone,
    scorer="facets",
    judge=judge_twice,
    prompts=(EXTRACT, COMPARE),
    words="ours",
    needs_judge=True,
)
KIT = replace(OFFICIAL, ask=ask_question)
LMMS = replace(OFFICIAL, ask=ask_directly, judge=judge_once, prompts=(COMPARE,))
