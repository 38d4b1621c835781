"""CharXiv: a model grades each answer with the grading query that comes with the data.

Source: CharXiv's `evaluate.py`; VLMEvalKit e8e78f05, `charxiv.py`. The exact text of questions and grading
queries comes from VLMEvalKit's files, which have it from the authors. The authors' script grades five
descriptive answers of one template per call (`charxiv_descriptive.py`); VLMEvalKit grades each separately, as
is done here.
"""

from vtune.data.charts import PLACE
from vtune.judge.prompts import Prompt
from vtune.protocols.protocol import Ask, Grade, Judging, Rule, said
from vtune.protocols.readers import read_graded
from vtune.schema.sample import Sample
from vtune.verifiers.exact import normalise

QUERY = Prompt("", "{grading_query}")
WANTED = 'JSON {"extracted_answer": "…", "score": 0 or 1}'


def ask(question: str, sample: Sample) -> str:
    """The question with its instructions, as in the data."""
    return str(sample.extra["query"])


def grade_alone(text: str, sample: Sample) -> Grade:
    """Without a model: an identical text is right, anything else is undecided."""
    same = bool(text.strip()) and normalise(text) == normalise(sample.ground_truth)
    return said(text.strip() if same else None, right=True)


def judge(text: str, sample: Sample) -> Judging:
    """One query per answer; a reply that is not JSON with a score gives no grade."""
    if not text.strip():
        return said(None, right=False)
    query = str(sample.extra["grading_query"]).replace(PLACE, text)
    answer, right = yield Ask(prompt=Prompt("", query), read=read_graded, wanted=WANTED)
    return said(answer, right)


RULE = Rule(
    ask=ask,
    grade=grade_alone,
    scorer="facets",
    judge=judge,
    prompts=(QUERY,),
    words="data",
    needs_judge=True,
)
