"""Search-agent questions with short answers: how each protocol grades them.

Questions are used as in the data; any system turn comes from the agent. In a judged rule the sample's
verifier asks a model (see `vtune.verifiers.gradings`); the others need no model.
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
"""Kinds of question in table 1 of Dong et al.; all are in the data of SenseNova-MARS."""
KINDS = (*TABLE_1, "mmsearch_plus", "browsecomp_vl")


def grade_f1(answer: str, sample: Sample) -> Grade:
    """MMSearch: the best F1 over words with any truth, both in SQuAD's form."""
    words = squad(answer).split()
    if not words:
        return Grade(score=0.0, read=None, fallback=0.0)
    score = max(_f1(words, squad(truth).split()) for truth in truths(sample))
    return Grade(score=score, read=answer, fallback=score)


def grade_exact(answer: str, sample: Sample) -> Grade:
    """MMSearch-R1: identical to any candidate, both in SQuAD's form."""
    given = squad(answer)
    return said(answer if given else None, given in {squad(truth) for truth in truths(sample)})


def without_judge(sample: Sample) -> Sample:
    """The sample changed so that no model is asked: its truths are compared by a rule."""
    return replace(sample, verifier=exact.NAME)


@cache
def judged_by(grading: str) -> Rule:
    """The rule by which a model grades, according to a grading of `vtune.verifiers.gradings`."""

    def prepared(sample: Sample) -> Sample:
        parm = {**sample.verifier_parm, KEY: grading}
        parm.pop(exact.MATCH, None)  # an option of `exact`; the model's grading decides how to compare
        return replace(sample, verifier=judge.NAME, verifier_parm=parm)

    scorer = "attempted" if grading == "attempted" else "mean"
    return Rule(ask=None, grade=verified, by="verifier", prepared=prepared, scorer=scorer, reads="reply")


def _f1(given: Sequence[str], truth: Sequence[str]) -> float:
    same = sum((Counter(given) & Counter(truth)).values())
    return 2 * same / (len(given) + len(truth))


MARS: Mapping[str, Rule] = MappingProxyType(dict.fromkeys(KINDS, judged_by("mars")))
"""`llm_judge_score` of SenseNova-MARS; also for the two kinds that it does not ship."""
PAPER: Mapping[str, Rule] = MappingProxyType(dict.fromkeys(TABLE_1, judged_by("mars")))
"""Dong et al., appendix B.4: set-up and judge of SenseNova-MARS, with Qwen3-VL-32B-Instruct."""
OFFICIAL: Mapping[str, Rule] = MappingProxyType(
    {
        # Only the part `end2end` of its score; the others are about queries that it asks for separately.
        "mmsearch": Rule(ask=None, grade=grade_f1, prepared=without_judge, scorer="mean"),
        "fvqa": Rule(ask=None, grade=grade_exact, prepared=without_judge, scorer="mean"),
        "simplevqa": judged_by("attempted"),
        "livevqa": judged_by("attempted"),
        "browsecomp_vl": judged_by("extracted"),
    }
)
"""The authors' scripts; BrowseComp-VL's is WebWatcher's."""
