"""What a protocol promises."""

import copy
from collections.abc import Callable

from vtune.metrics.benchmarks import SCORERS
from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Rule, put
from vtune.protocols.specimens import OTHER_FORMS, SPECIMENS
from vtune.runs.parts.checks.check import Broken, Check, tried
from vtune.schema.message import IMAGE
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth, verifier_of

ODD = ("", " ", "\n", "B or C", "{", "}{", "<answer>", "</answer><answer>", "(", "\\boxed{", "é9" * 2500)
"""Replies that break careless parsers."""


def check_protocol(name: str) -> list[Check]:
    """Each rule asks with all pictures, grades the right answer 1, and any text without an exception."""
    protocol = PROTOCOLS[name]
    rules = dict(protocol.rules)
    if protocol.other is not None:
        rules |= {kind: protocol.other for kind in SPECIMENS if kind not in rules}
    if not rules:
        return [tried("there is a rule", _no_rule)]
    return [check for kind, rule in rules.items() for check in _checks(kind, rule)]


def _no_rule() -> str:
    raise Broken("the protocol has no rule", "give Protocol `rules`, kind of question -> Rule, or `other`")


def _checks(kind: str, rule: Rule) -> list[Check]:
    sample, right = SPECIMENS.get(kind, SPECIMENS["multiple_choice"])
    if rule.prepared is not None and verifier_of(rule.prepared(sample)).asks_judge:
        return [
            tried(f"{kind}: pictures stay in the prompt", _asks(rule, sample)),
            tried(f"{kind}: the right answer can be judged", _judged(rule, sample)),
            tried(f"{kind}: the scorer is known", _scorer(rule)),
        ]
    return [
        tried(f"{kind}: pictures stay in the prompt", _asks(rule, sample)),
        tried(f"{kind}: the right answer earns 1", _right(kind, rule, sample, right)),
        tried(f"{kind}: any text is graded, and the same way twice", _total(rule, sample, right)),
        tried(f"{kind}: the scorer is known", _scorer(rule)),
    ]


def _asks(rule: Rule, sample: Sample) -> Callable[[], str]:
    def run() -> str:
        before, after = sample.prompt[-1], put(sample, rule).prompt[-1]
        if after.images != before.images:
            raise Broken(
                f"pictures {list(before.images)} became {list(after.images)}",
                f"keep each {IMAGE} of the question in what `ask` returns",
            )
        return f"{len(after.content)} characters"

    return run


def _right(kind: str, rule: Rule, sample: Sample, right: str) -> Callable[[], str]:
    """The right answer in the rule's own form, else in one of the forms that protocols ask for."""

    def run() -> str:
        forms = (right, *OTHER_FORMS.get(kind, ()))
        replies = [f"<answer>{form}</answer>" if rule.reads == "reply" else form for form in forms]
        if rule.example is not None:
            replies = [rule.example(sample)]
        grades = [rule.grade(reply, sample) for reply in replies]
        for reply, grade in zip(replies, grades, strict=True):
            if grade.score == 1.0 and not grade.unreadable:
                return f"{reply!r} is 1"
        raise Broken(
            f"{replies[0]!r} is graded {grades[0]}",
            "let `grade` give this reply a score of 1; or give a right reply in `example` of the Rule",
        )

    return run


def _judged(rule: Rule, sample: Sample) -> Callable[[], str]:
    def run() -> str:
        prepared = put(sample, rule)
        check_ground_truth(prepared)
        return f"verifier `{prepared.verifier}`, which asks a model"

    return run


def _total(rule: Rule, sample: Sample, right: str) -> Callable[[], str]:
    def run() -> str:
        before = copy.deepcopy(sample)
        for text in (*ODD, f"not {right}", sample.prompt[-1].content):
            grade = rule.grade(text, sample)
            if grade != rule.grade(text, sample):
                raise Broken(f"{text[:40]!r} is graded in two ways", "let `grade` not depend on chance")
            if not (0.0 <= grade.score <= 1.0 and 0.0 <= grade.fallback <= 1.0):
                raise Broken(f"{text[:40]!r} is graded {grade}", "score and fallback lie in [0, 1]")
            if grade.unreadable and grade.score:
                raise Broken(f"{text[:40]!r} is unreadable, but not wrong", "score what cannot be read 0")
        if sample != before:
            raise Broken("`grade` changed the sample", "copy what you change")
        return f"{len(ODD) + 2} texts"

    return run


def _scorer(rule: Rule) -> Callable[[], str]:
    def run() -> str:
        if rule.scorer is not None and rule.scorer not in SCORERS:
            raise Broken(f"there is no scorer `{rule.scorer}`", SCORERS.meant(rule.scorer))
        return rule.scorer or "the suite's"

    return run
