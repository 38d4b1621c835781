"""Search-agent questions with short answers: how each protocol grades them.

A question stays as its row has it; what a system turn says is the agent's. A judged rule has the verifier of
the sample ask a model (see `vtune.verifiers.gradings`); the others read alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from vtune.judge.graders import truths
from vtune.protocols.protocol import Grade, Rule, said
from vtune.protocols.vtune import grade as verified
from vtune.schema.sample import Sample
from vtune.verifiers import exact, judge
from vtune.verifiers.exact import squad
from vtune.verifiers.gradings import KEY

TABLE_1 = ("mmsearch", "hr_mmsearch", "fvqa", "infoseek", "simplevqa", "livevqa", "mat_search")
"""Kinds of question of Dong et al., table 1; all are of the data of SenseNova-MARS."""
KINDS = (*TABLE_1, "mmsearch_plus", "browsecomp_vl")


def grade_f1(answer: str, sample: Sample) -> Grade:
    """MMSearch: the best F1 over words with any truth, both in SQuAD's form."""
    words = squad(answer).split()
    if not words:
        return Grade(score=0.0, read=None, fallback=0.0)
    score = max(_f1(words, squad(truth).split()) for truth in truths(sample))
    return Grade(score=score, read=answer, fallback=score)


def grade_exact(answer: str, sample: Sample) -> Grade:
    """MMSearch-R1: any candidate in SQuAD's form, word for word."""
    given = squad(answer)
    return said(answer if given else None, given in {squad(truth) for truth in truths(sample)})


def without_judge(sample: Sample) -> Sample:
    """The sample so that no model is asked: its truths are compared by a rule."""
    return replace(sample, verifier=exact.NAME)


@cache
def judged_by(grading: str) -> Rule:
    """The rule by which a model grades, as a grading of `vtune.verifiers.gradings` says."""

    def prepared(sample: Sample) -> Sample:
        parm = {**sample.verifier_parm, KEY: grading}
        parm.pop(exact.MATCH, None)  # how `exact` compares; the model's grading says how it does
        return replace(sample, verifier=judge.NAME, verifier_parm=parm)

    scorer = "attempted" if grading == "attempted" else "mean"
    return Rule(ask=None, grade=verified, by="verifier", prepared=prepared, scorer=scorer, reads="reply")


def _f1(given: Sequence[str], truth: Sequence[str]) -> float:
    same = sum((Counter(given) & Counter(truth)).values())
    return 2 * same / (len(given) + len(truth))


MARS: Mapping[str, Rule] = MappingProxyType(dict.fromkeys(KINDS, judged_by("mars")))
"""`llm_judge_score` of SenseNova-MARS; of the two kinds that it does not ship, by the same rule."""
PAPER: Mapping[str, Rule] = MappingProxyType(dict.fromkeys(TABLE_1, judged_by("mars")))
"""Dong et al., appendix B.4: set-up and judge of SenseNova-MARS, by Qwen3-VL-32B-Instruct."""
OFFICIAL: Mapping[str, Rule] = MappingProxyType(
    {
        # The part `end2end` of its score; the others are about queries that it asks for apart.
        "mmsearch": Rule(ask=None, grade=grade_f1, prepared=without_judge, scorer="mean"),
        "fvqa": Rule(ask=None, grade=grade_exact, prepared=without_judge, scorer="mean"),
        "simplevqa": judged_by("attempted"),
        "livevqa": judged_by("attempted"),
        "browsecomp_vl": judged_by("extracted"),
    }
)
"""The scripts of the authors; BrowseComp-VL's is WebWatcher's."""
