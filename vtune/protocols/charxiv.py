"""CharXiv: a model grades each answer with the grading query that comes with the data.

Source: CharXiv's `evaluate.py`; VLMEvalKit e8e78f05, `charxiv.py`. The bytes of questions and grading
queries are those of VLMEvalKit's files, which have them from the authors. The authors' script grades five
descriptive answers of one template in a call (`charxiv_descriptive.py`); VLMEvalKit grades each alone, and so
does this.
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
    """The question with its instructions, as the data have it."""
    return str(sample.extra["query"])


def grade_alone(text: str, sample: Sample) -> Grade:
    """Without a model: the same text is right, and the rest cannot be told."""
    same = bool(text.strip()) and normalise(text) == normalise(sample.ground_truth)
    return said(text.strip() if same else None, right=True)


def judge(text: str, sample: Sample) -> Judging:
    """One query per answer; what is no JSON with a score is no grade."""
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
