"""What a verifier promises."""

import asyncio
import copy
import pickle
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from vtune.errors import DataError, VtuneError
from vtune.runs.parts.checks.check import Broken, Check, in_time, quickest, tried
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Outcome
from vtune.schema.verdict import Verdict
from vtune.verifiers import PARTIAL_CREDIT, VERDICT_IS, VERIFIERS, Verifier, between_0_and_1
from vtune.verifiers.environment_reward import OUTCOME, with_outcome
from vtune.verifiers.judge import judged
from vtune.verifiers.perfect import check_full_marks
from vtune.verifiers.verifier import Undecided
from vtune.verifiers.verifying import SLICE, Verifying

INLINE = 0.005
"""Seconds per verdict at most for a verifier that is not `in_worker`, ours: it blocks the rollouts' loop."""
TIMES = 20
"""Number of verdicts; the quickest counts."""
ODD = ("", "<answer></answer>", "<answer>", "I do not know.", "</answer><answer>", "\x00\ud800")
"""Replies without an answer."""
FASTER = "do less: what takes longer in a worker starts again in one of the few processes for slow replies"
"""The next step for a verifier that is too slow even in a worker."""
FULL_MARKS = "the gold answer earns full marks"
GOLD = "give `gold` of the case the score 1"
NO_ANSWER = "return no_answer(sample) where given_answer finds none"


def near_misses(gold: str) -> list[str]:
    """Answers that are almost right, for which a verifier may give part of the score.

    Args:
        gold: The right answer.

    Returns:
        Each of its numbers off by one and by a tenth, each letter and digit replaced by a neighbour, one at a
        time, one word left out, and the whole answer twice. Ours.
    """
    found = []
    for number in re.finditer(r"\d+(?:\.\d+)?", gold):
        for step in (-1, 1, -0.1, 0.1):
            value = f"{float(number[0]) + step:.6g}"
            found.append(f"{gold[: number.start()]}{value}{gold[number.end() :]}")
    letters = [place for place, sign in enumerate(gold) if sign.isascii() and sign.isalnum()]
    for place in (*letters[:1], *letters[-1:]):
        for step in (-1, 1):
            found.append(f"{gold[:place]}{chr(ord(gold[place]) + step)}{gold[place + 1 :]}")
    words = gold.split()
    found += [" ".join(words[1:]), " ".join(words[:-1])] if len(words) > 1 else []
    found += [f"{gold} {gold}", f"{gold}, {gold}"]
    return [one for one in dict.fromkeys(found) if one != gold]


@dataclass(frozen=True, slots=True)
class _VerifierTrial:
    """A verifier, and its example."""

    verifier: Verifier
    made: Sample

    @property
    def sample(self) -> Sample:
        """The sample of its case, copied each time: a verifier may have modified the previous one."""
        return copy.deepcopy(self.made)

    @property
    def best(self) -> Sample:
        """The sample for which the gold reply is right; for an environment's reward, with outcome 1."""
        if not self.verifier.reads_outcome:
            return self.sample
        return with_outcome(self.sample, Outcome(1.0, "for the check"))

    @property
    def worst(self) -> Sample:
        """The same sample with nothing right; for an environment's reward, with outcome 0."""
        if not self.verifier.reads_outcome:
            return self.sample
        return with_outcome(self.sample, Outcome(0.0, "for the check"))

    @property
    def gold(self) -> str:
        """A right reply."""
        return f"<think>Let me see.</think><answer>{self.verifier.case.gold}</answer>"

    @property
    def wrong(self) -> str:
        """A reply that earns nothing."""
        return f"<answer>{self.verifier.case.wrong}</answer>"

    @property
    def pairs(self) -> Sequence[tuple[str, Sample]]:
        """Replies of all kinds, each with the sample that it answers."""
        cut = f"<answer>{self.verifier.case.gold[:-1]}</answer>"
        return [(self.gold, self.best), *((reply, self.worst) for reply in (*ODD, cut, self.wrong))]

    def verdict(self, reply: str, sample: Sample, *, same: bool = False) -> Verdict:
        """Its verdict; if it asks a model, that model says whether the answer is the same as the truth."""
        try:
            found: object = self.verifier.verify(reply, sample)
        except Undecided as left:
            if not self.verifier.asks_judge:
                raise Broken("the verifier leaves an answer to a model", "say asks_judge=True") from None
            return judged(left.answer, sample, same=same)
        return _verdict(found)

    def gives(self) -> str:
        """Whether it gives a verdict at all; errors that verifiers may raise are checked later."""
        with suppress(VtuneError):
            _verdict(self.verifier.verify(self.gold, self.best))
        return "a verdict"

    def full_marks(self) -> str:
        self.verifier.check_ground_truth(self.best)
        return _expect(self.verdict(self.gold, self.best, same=True), 1.0, GOLD)

    def truth(self) -> str:
        """What `vtune data validate` tries for every row."""
        check_full_marks(self.best, None)
        return "the environment judges" if self.verifier.reads_outcome else self.verifier.right(self.best)

    def nothing(self) -> str:
        for reply in ODD:
            _expect(self.verdict(reply, self.worst), 0.0, NO_ANSWER, f"reply {reply!r}")
        if self.verifier.reads_outcome:
            return f"{len(ODD)} replies score what the environment gave, 0"
        if self.verdict("", self.sample).parts.get("unreadable") != 1.0:
            raise Broken('the verdict on an empty reply has no part "unreadable" of 1', NO_ANSWER)
        return f"{len(ODD)} replies score 0"

    def wrong_answer(self) -> str:
        return _expect(self.verdict(self.wrong, self.worst), 0.0, "give `wrong` of the case the score 0")

    def broken_gold(self) -> str:
        verifier, sample = self.verifier, self.sample
        if verifier.reads_outcome:
            far = replace(sample, verifier_parm={**sample.verifier_parm, OUTCOME: "far"})
            _refuses("verify", "no outcome", lambda: verifier.verify(self.gold, with_outcome(sample, None)))
            bad, what = far, "the outcome 'far'"
        else:
            bad = replace(sample, ground_truth=verifier.case.broken_gold)
            what = f"the ground truth {bad.ground_truth!r}"
        _refuses("check_ground_truth", what, lambda: verifier.check_ground_truth(bad))
        _refuses("verify", what, lambda: verifier.verify(self.gold, bad))
        return "DataError"

    def unknown_option(self) -> str:
        odd = replace(self.sample, verifier_parm={**self.sample.verifier_parm, "no such option": 1})
        try:
            self.verifier.check_ground_truth(odd)
        except DataError:
            return "DataError"
        raise Broken("an unknown key of verifier_parm passes", "read the options with `options(sample, {…})`")

    def scores(self) -> str:
        near = [(f"<answer>{answer}</answer>", self.worst) for answer in near_misses(self.verifier.case.gold)]
        for reply, sample in (*self.pairs, *near):
            score = self.verdict(reply, sample).score
            if score < 0.0:
                raise Broken(f"{reply!r} scores {score:.3g}", "let scores lie in [0, 1]")
            if between_0_and_1(score) and not self.verifier.partial_credit:
                raise Broken(f"{reply!r} scores {score:.3g}", PARTIAL_CREDIT)
        return "partial credit" if self.verifier.partial_credit else "0 or 1"

    def same(self) -> str:
        for reply, sample in self.pairs:
            first, again = self.verdict(reply, sample), self.verdict(reply, sample)
            if first != again:
                raise Broken(
                    f"reply {reply!r} gets {first} and then {again}",
                    "a verdict must not depend on chance or state",
                )
        return f"{len(self.pairs)} replies, twice"

    def reasons(self) -> str:
        for reply, sample in self.pairs:
            why = self.verdict(reply, sample).why
            if not isinstance(why, str) or not why.strip():
                raise Broken(f"the reason of the verdict on {reply!r} is {why!r}", "give the reason")
        return self.verdict(self.wrong, self.worst).why

    def unchanged(self) -> str:
        """All rollouts of a group are judged with the same sample."""
        for reply, sample in self.pairs:
            before = copy.deepcopy(sample)
            self.verdict(reply, sample)
            self.verifier.check_ground_truth(sample)
            if sample != before:
                raise Broken("a verdict changed the sample", "copy what you change")
        return f"{len(self.pairs)} verdicts"

    def undecided(self) -> str:
        """Only the answer is left to a model, and the model's verdict counts."""
        if not self.verifier.asks_judge:
            return "not tested: the verifier asks no model"
        try:
            found = self.verifier.verify(self.wrong, self.worst)
        except Undecided as left:
            said = self.verdict(self.wrong, self.worst, same=True)
            return f"{left.answer!r} is left to a model: {said.score:g} or 0"
        return f"a rule decides: {found.why}"

    def elsewhere(self) -> str:
        sent = pickle.loads(pickle.dumps(self.verdict(self.gold, self.best, same=True)))
        _expect(sent, 1.0, GOLD)
        if not self.verifier.in_worker:
            return "the verdict can be sent"

        async def agrees(answer: str, sample: Sample) -> bool:
            return True

        async def asked() -> Verdict:
            async with Verifying(workers=1) as verifying:
                return await verifying.verify(self.gold, self.best, judge=agrees)

        return f"{_expect(asyncio.run(asked()), 1.0, GOLD)}, from a worker"

    def fast(self) -> str:
        most, fix = (SLICE, FASTER) if self.verifier.in_worker else (INLINE, "say in_worker=True")
        sample = self.best

        def once() -> None:
            with suppress(Undecided):
                self.verifier.verify(self.gold, sample)

        return in_time(quickest(TIMES, once), most, "a reply", fix)


def check_verifier(name: str) -> list[Check]:
    """Its case: gold, no answer, a wrong one, an invalid truth; and its speed (main thread only)."""
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
    gives = tried(FULL_MARKS, trial.gives)
    if not gives.ok:
        return [gives]  # all others would report the same
    return [
        tried(FULL_MARKS, trial.full_marks),
        tried("the ground truth earns full marks", trial.truth),
        tried("no answer earns nothing", trial.nothing),
        tried("a wrong answer earns nothing", trial.wrong_answer),
        tried("a broken ground truth is an error", trial.broken_gold),
        tried("an unknown option is an error", trial.unknown_option),
        tried("scores are as `partial_credit` says", trial.scores),
        tried("the same reply scores the same", trial.same),
        tried("every verdict has a reason", trial.reasons),
        tried("the sample is not changed", trial.unchanged),
        tried("a model says what no rule decides", trial.undecided),
        tried("a verdict crosses processes", trial.elsewhere),
        tried("fast enough", trial.fast),
    ]


def _refuses(name: str, what: str, run: Callable[[], object]) -> None:
    """Check that a function of the verifier raises DataError."""
    try:
        run()
    except DataError:
        return
    raise Broken(f"{name} takes {what}", "raise DataError")


def _verdict(found: object) -> Verdict:
    if not isinstance(found, Verdict):
        raise Broken(f"the verifier returns {type(found).__name__}, not Verdict", VERDICT_IS)
    return found


def _expect(verdict: Verdict, wanted: float, fix: str, of: str = "the verdict") -> str:
    if verdict.score != wanted:
        raise Broken(
            f"{of} scores {verdict.score:.3g}, not {wanted:g}: {verdict.why or 'no reason given'}", fix
        )
    return f"{verdict.score:g}"
