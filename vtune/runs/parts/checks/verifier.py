"""What a verifier promises."""

import asyncio
import pickle
import time
from dataclasses import dataclass, replace

from vtune.errors import DataError
from vtune.runs.parts.checks.check import Broken, Check, in_time, tried
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS, Verifier
from vtune.verifiers.verifying import SLICE, Verifying

INLINE = 0.005
"""Seconds of a verdict at most where a verifier is not `in_worker`, ours: a loop of rollouts waits for it."""
TIMES = 20
"""Verdicts over which the time is averaged."""
ODD = ("", "<answer></answer>", "<answer>", "I do not know.", "</answer><answer>", "\x00\ud800")
"""Replies without an answer."""
GOLD = "score `gold` of its case 1"
NO_ANSWER = "return no_answer(sample) where given_answer finds none"


@dataclass(frozen=True, slots=True)
class _VerifierTrial:
    """A verifier, and the example that it brings."""

    verifier: Verifier
    sample: Sample

    @property
    def gold(self) -> str:
        """A right reply."""
        return f"<think>Let me see.</think><answer>{self.verifier.case.gold}</answer>"

    @property
    def wrong(self) -> str:
        """A reply that earns nothing."""
        return f"<answer>{self.verifier.case.wrong}</answer>"

    def full_marks(self) -> str:
        self.verifier.check_ground_truth(self.sample)
        return _expect(self.verifier.verify(self.gold, self.sample), 1.0, GOLD)

    def nothing(self) -> str:
        for reply in ODD:
            _expect(self.verifier.verify(reply, self.sample), 0.0, NO_ANSWER, f"reply {reply!r}")
        if self.verifier.verify("", self.sample).parts.get("unreadable") != 1.0:
            raise Broken('the verdict on an empty reply has no part "unreadable" of 1', NO_ANSWER)
        return f"{len(ODD)} replies score 0"

    def wrong_answer(self) -> str:
        if self.verifier.asks_judge:
            return "a model decides"
        return _expect(self.verifier.verify(self.wrong, self.sample), 0.0, "score `wrong` of its case 0")

    def broken_gold(self) -> str:
        bad = replace(self.sample, ground_truth=self.verifier.case.broken_gold)
        for what, run in (
            ("check_ground_truth", lambda: self.verifier.check_ground_truth(bad)),
            ("verify", lambda: self.verifier.verify(self.gold, bad)),
        ):
            try:
                run()
            except DataError:
                continue
            raise Broken(f"{what} takes the ground truth {bad.ground_truth!r}", "raise DataError")
        return "DataError"

    def unknown_option(self) -> str:
        odd = replace(self.sample, verifier_parm={**self.sample.verifier_parm, "no such option": 1})
        try:
            self.verifier.check_ground_truth(odd)
        except DataError:
            return "DataError"
        raise Broken("an unknown key of verifier_parm passes", "read the options with `options(sample, {…})`")

    def scores(self) -> str:
        texts = [*ODD, self.gold, f"<answer>{self.verifier.case.gold[:-1]}</answer>", self.wrong]
        if self.verifier.asks_judge:
            texts = [*ODD, self.gold]
        found = [self.verifier.verify(text, self.sample).score for text in texts]
        between = [score for score in found if 0.0 < score < 1.0]
        if between and not self.verifier.partial_credit:
            raise Broken(f"a score is {between[0]:.3g}", "say partial_credit=True, or give 0 or 1")
        return "partial credit" if self.verifier.partial_credit else "0 or 1"

    def elsewhere(self) -> str:
        _expect(pickle.loads(pickle.dumps(self.verifier.verify(self.gold, self.sample))), 1.0, GOLD)
        if not self.verifier.in_worker:
            return "the verdict can be sent"

        async def asked() -> Verdict:
            async with Verifying(workers=1) as verifying:
                return await verifying.verify(self.gold, self.sample)

        return f"{_expect(asyncio.run(asked()), 1.0, GOLD)}, from a worker"

    def fast(self) -> str:
        most = SLICE if self.verifier.in_worker else INLINE
        began = time.perf_counter()
        for _ in range(TIMES):
            self.verifier.verify(self.gold, self.sample)
        return in_time((time.perf_counter() - began) / TIMES, most, "a reply", "say in_worker=True")


def check_verifier(name: str) -> list[Check]:
    """Its case: gold, no answer, a wrong one, a broken truth; and that it is fast (main thread only)."""
    verifier = VERIFIERS[name]
    case = verifier.case
    sample = Sample(
        id="check/1",
        source="check",
        prompt=(Message("user", "Which one?"),),
        ground_truth=case.gold if case.truth is None else case.truth,
        verifier=name,
        verifier_parm=dict(case.parm),
        choices=case.choices,
    )
    trial = _VerifierTrial(verifier, sample)
    return [
        tried("the gold answer earns full marks", trial.full_marks),
        tried("no answer earns nothing", trial.nothing),
        tried("a wrong answer earns nothing", trial.wrong_answer),
        tried("a broken ground truth is an error", trial.broken_gold),
        tried("an unknown option is an error", trial.unknown_option),
        tried("scores are as it says", trial.scores),
        tried("a verdict crosses processes", trial.elsewhere),
        tried("fast enough", trial.fast),
    ]


def _expect(verdict: Verdict, wanted: float, fix: str, of: str = "it") -> str:
    if verdict.score != wanted:
        raise Broken(f"{of} scores {verdict.score:.3g}, not {wanted:g}: {verdict.why}", fix)
    return f"{verdict.score:g}"
