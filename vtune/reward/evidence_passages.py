"""The evidence judge for searches: a call shows the target if a returned passage contains the answer.

Only tools that search are believed: what a policy's own code prints is its own writing.
"""

import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from vtune.errors import DataError
from vtune.judge.client import JudgeClient
from vtune.parts import OURS
from vtune.reward.evidence_judge import EVIDENCE, EvidencePart, Example
from vtune.reward.recipe import EvidenceLevels
from vtune.reward.search_output import returned, seen, title
from vtune.reward.searches import SEARCHES, asked
from vtune.reward.spellings import without_accents, written
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.schema.verdict import Verdict
from vtune.tools import TOOLS, text_search
from vtune.tools.python import NAME as PYTHON
from vtune.tools.scripts import is_spaced, spelled
from vtune.tools.text_search import CUT
from vtune.verifiers import exact

NAME = "passages"

SHORTEST = 3
"""Fewest characters of an answer that is looked for in any passage, as `spelled`; ours: a digit or "no" is in
most of them. In scripts without spaces, two characters are enough: they are mostly a word."""

_ARTICLE = re.compile(r"\s*(?:an?|the)\s+(?=[^\W\d_])", re.IGNORECASE)
"""An article before the words of an answer; "The 1975" is not 1975."""

_INNER = re.compile(r"(?<=[^\W\d_])[.'\u2019-](?=[^\W\d_])")
"""Punctuation between letters that an answer may also be written without: D.C. and DC."""
_INNER_OF_PASSAGE = re.compile(r"(?<=[^\W\d_])[.-](?=[^\W\d_])")
"""That of a passage: "she'll" is no shell."""

DOCUMENTS = "documents"
"""The key of `extra_info` with the titles of the documents that hold the answer; without it, and in a
summary, which has no title, any may."""

FACT = "atomic_fact"
"""The key of `extra_info` with the intermediate entity of the question (SimpleVQA): only passages that name
it count."""


class _Forms(NamedTuple):
    """The words of an answer or of a passage, in each way that they may be written."""

    folded: Set[str]
    """Without case."""
    cased: Set[str]
    """With it: without punctuation or an article, W.H.O. is like who, and The Doors like doors."""
    bare: Set[str]
    """With it, without accents: names are written so, and Pelé is not the verb "pele"."""

    def are_held_by(self, passage: "_Forms") -> bool:
        """Whether a passage has any of them as whole words."""
        return any(
            f" {form} " in f" {words} "
            for forms, texts in zip(self, passage, strict=True)
            for form in forms
            for words in texts
        )


class _Sought(NamedTuple):
    """What is looked for in passages."""

    titles: frozenset[str]
    """Of the documents that hold the answer; empty if none are known."""
    fact: str
    answers: Mapping[str, _Forms]
    """In the text of a named document, or beside the fact."""
    long_answers: Mapping[str, _Forms]
    """Anywhere else, titles included: a digit stands in many of them."""


class _Passage(NamedTuple):
    """A passage or a summary, and what it shows."""

    words: str
    is_cut: bool
    answer: str
    """The spelling of the answer that it contains; empty if none."""
    fact: bool
    """Whether it names the intermediate fact."""

    @property
    def level(self) -> int:
        """How much it shows: 2 the answer, 1 the fact alone, 0 neither."""
        return 2 if self.answer else int(self.fact)


class _Found(NamedTuple):
    """What a search returned."""

    passages: Sequence[_Passage]
    new: Sequence[_Passage]
    """Those that no earlier search returned: a passage is rewarded once."""
    guessed: bool
    """The query names the answer, and nothing before it did."""
    known: bool
    """It is a summary that shows no more than an earlier one did, in other words."""

    @property
    def answer(self) -> str:
        """The spelling of the answer that it shows; empty if none."""
        counts = not (self.guessed or self.known)
        return next((one.answer for one in self.new if one.answer), "") if counts else ""


@dataclass(slots=True)
class _Shown:
    """What the searches of a trajectory have shown so far."""

    texts: set[str] = field(default_factory=set)
    beginnings: dict[str, int] = field(default_factory=dict)
    """Of passages that were cut, with their level: more of such a passage is new if it shows more."""
    summaries: int = 0
    """The highest level of a summary."""

    def has(self, one: _Passage) -> bool:
        """Whether a passage, or enough of it, was shown."""
        return (
            one.words in self.texts
            or (one.is_cut and any(text.startswith(one.words) for text in self.texts))
            or any(one.words.startswith(text) and one.level <= n for text, n in self.beginnings.items())
        )

    def add(self, passages: Sequence[_Passage], *, numbered: bool) -> None:
        """Note what a search returned."""
        self.texts.update(one.words for one in passages)
        self.beginnings |= {one.words: one.level for one in passages if one.is_cut and one.level}
        if not numbered:
            self.summaries = max([self.summaries, *(one.level for one in passages)])


class PassageJudge:
    """Looks for the answer in what searches returned, as whole words, or as a part of the text where no space
    parts words; in the gold documents where known. A leading article and punctuation between letters do not
    count where the letters have the same case.
    """

    def __init__(self, levels: EvidenceLevels) -> None:
        self._levels = levels
        self._read: tuple[Sample, Trajectory, list[_Found]] | None = None

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """`full` if a passage contains the answer, `partial` if it only names the intermediate fact, 0 if
        nothing was found or new, or a tool of ours does not search, else `miss`.

        Raises:
            DataError: If the call is of a tool that nobody knows: whether it searched, there is no saying.
        """
        call = trajectory.calls[k]
        if call.tool not in TOOLS and call.tool not in sample.tools:
            known = ", ".join(f"`{name}`" for name in SEARCHES if name in sample.tools)
            raise DataError(
                f"the sample offers no tool {call.tool!r:.60}", fix=f"name a search as it does: {known}"
            )
        if call.tool not in OURS[TOOLS.kind]:
            return Verdict(self._levels.miss, "miss: a tool of your own, whose output is not looked at")
        if call.tool not in SEARCHES:
            return Verdict(0.0, "not a search")
        found = self._found(sample, trajectory, k)
        if not found.new:
            return Verdict(0.0, "nothing new was found" if found.passages else "nothing was found")
        if found.answer:
            return Verdict(self._levels.full, f"full: a returned passage holds {found.answer!r}")
        if found.known:
            return Verdict(self._levels.miss, "miss: an earlier summary showed the same")
        if any(one.fact for one in found.new):
            return Verdict(self._levels.partial, f"partial: a returned passage names {sample.extra[FACT]!r}")
        if found.guessed:
            return Verdict(self._levels.miss, "miss: the query names the answer, which nothing had shown")
        return Verdict(self._levels.miss, "miss: no returned passage holds the answer")

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether a returned passage contains the answer."""
        return bool(self._found(sample, trajectory, k).answer)

    async def shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Never: text has no size."""
        return False

    def _found(self, sample: Sample, trajectory: Trajectory, k: int) -> _Found:
        """What call `k` returned. Calls are judged in turn: a trajectory is read once for all of them."""
        read = self._read
        if read is None or read[0] is not sample or read[1] is not trajectory:
            read = self._read = (sample, trajectory, _all_found(sample, trajectory.calls))
        return read[2][k]


def _all_found(sample: Sample, calls: Sequence[Call]) -> list[_Found]:
    """What each call returned, in the light of those before it.

    A query that names the answer finds passages about it, right or wrong. So it shows nothing, unless the
    question or an earlier call named the answer first, or documents are known: those hold it. A summary often
    repeats what it did not find; so there no earlier call is an excuse.
    """
    sought = _sought(sample)
    answers = sought.answers.values()
    given = in_question = _asks_for(answers, sample.question)
    shown = _Shown()
    every = []
    for call in calls:
        numbered, texts = returned(call, sought.titles)
        passages = [_read(text, sought, numbered=numbered) for text in texts]
        excused = bool(sought.titles) or given if numbered else in_question
        guessed = not excused and _asks_for(answers, " ".join(asked(call)))
        new = [one for one in passages if not shown.has(one)]
        known = not numbered and any(0 < one.level <= shown.summaries for one in new)
        every.append(_Found(passages, new, guessed, known))
        if not guessed:
            shown.add(passages, numbered=numbered)
            given = given or _told(call, answers)
    return every


def _read(passage: str, sought: _Sought, *, numbered: bool) -> _Passage:
    """What a passage shows: the answer counts in a named document, and beside the fact."""
    titles = sought.titles if numbered else frozenset()
    fact = bool(sought.fact) and _names(passage, sought.fact)
    line, _, text = passage.partition("\n")
    answer = ""
    if (not titles or title(line) in titles) and (fact or not sought.fact):
        anywhere = sought.long_answers if titles or not sought.fact else sought.answers
        places = [(sought.answers, text), (anywhere, passage)] if titles else [(anywhere, passage)]
        for spellings, where in places:
            words = _of_passage(where)
            answer = answer or next((one for one, forms in spellings.items() if forms.are_held_by(words)), "")
    return _Passage(spelled(passage), passage.endswith(CUT), answer, fact)


def _asks_for(answers: Collection[_Forms], text: str) -> bool:
    """Whether a query or a question names the answer: its words together, in any order and case.

    "The Who" is not asked for by "who was the …". A single word that is only a part of the answer, as Band of
    The Band, needs its case.
    """
    said = _of_passage(text)
    texts = [words.casefold().split() for forms in said for words in forms]
    return any(
        forms.are_held_by(said)
        or any(_together(form.casefold().split(), words) for form in _in_any_order(forms) for words in texts)
        for forms in answers
    )


def _in_any_order(forms: _Forms) -> list[str]:
    in_parts = any(" " in form for form in forms.folded)
    every = forms.folded | forms.cased | forms.bare
    return [one for one in every if len(one) > SHORTEST and is_spaced(one) and (" " in one or not in_parts)]


def _together(words: Sequence[str], text: Sequence[str]) -> bool:
    """Whether as many consecutive words of a text are these, in any order."""
    wanted, size = sorted(words), len(words)
    return set(words).issubset(text) and any(
        sorted(text[start : start + size]) == wanted for start in range(len(text) - size + 1)
    )


def _told(call: Call, answers: Collection[_Forms]) -> bool:
    """Whether a call returned the answer in words that are not the policy's own."""
    if call.tool == PYTHON or call.status != "ok":
        return False
    said = _of_passage(seen(call))
    return any(forms.are_held_by(said) for forms in answers)


def _of_passage(text: str) -> _Forms:
    text = written(text)
    both = {text, _INNER_OF_PASSAGE.sub("", text)}
    cased = {spelled(one, keep_case=True) for one in both}
    bare = cased if text.isascii() else {spelled(without_accents(one), keep_case=True) for one in both}
    return _Forms({spelled(text)}, cased, bare)


def _names(passage: str, fact: str) -> bool:
    return f" {fact} " in f" {spelled(written(passage))} "


def _of_answer(answer: str, least: int) -> _Forms:
    """The forms of an answer that are looked for: those of enough characters, also without an article.

    Without it one more than `SHORTEST` are needed everywhere: "The Who" is not any Who. Several words are
    then enough to tell it in any case. Without accents, only names are looked for.
    """
    answer = written(answer)
    folded = {form for form in (spelled(answer),) if len(form) >= least}
    cased = {form for form in _with_case(answer) if len(form) >= least}
    if article := _ARTICLE.match(answer):
        rest = answer[article.end() :]
        cased |= {form for form in _with_case(rest) if len(form) > SHORTEST}
        if len(rest.split()) > 1 and len(form := spelled(rest)) > SHORTEST:
            folded.add(form)
    plain_names = {without_accents(form) for form in cased if len(form) > SHORTEST and form[0].isupper()}
    return _Forms(folded, cased, plain_names)


def _with_case(answer: str) -> set[str]:
    return {spelled(one, keep_case=True) for one in (answer, _INNER.sub("", answer))}


def _answers(sample: Sample, *, least: int) -> dict[str, _Forms]:
    """The spellings of the answer that can be looked for, each with its forms."""
    options = {"ABCDEFGHIJKLMNOPQRSTUVWXYZ"[n]: text for n, text in enumerate(sample.choices[:26])}
    aliases = sample.verifier_parm.get("aliases", ())
    answers = [sample.ground_truth, sample.answer, *(aliases if isinstance(aliases, list | tuple) else ())]
    said = [options.get(str(one), str(one)) for one in answers]
    return {one: forms for one in said if any(forms := _of_answer(one, least))}


def _sought(sample: Sample) -> _Sought:
    titles, fact = _titles(sample), _fact(sample)
    answers = _answers(sample, least=1 if titles or fact else SHORTEST)
    return _Sought(titles, fact, answers, _answers(sample, least=SHORTEST))


def _titles(sample: Sample) -> frozenset[str]:
    titles = sample.extra.get(DOCUMENTS)
    return frozenset(map(title, titles)) if isinstance(titles, list | tuple) else frozenset()


def _fact(sample: Sample) -> str:
    """The words of the intermediate fact; empty if none is known."""
    fact = sample.extra.get(FACT)
    return spelled(written(fact)) if isinstance(fact, str) else ""


def _can_judge(sample: Sample) -> bool:
    """Whether a search is offered, and the answer is long enough for the passages that may contain it."""
    return bool(set(SEARCHES) & set(sample.tools)) and bool(_sought(sample).answers)


def opened(levels: EvidenceLevels, client: JudgeClient | None) -> PassageJudge:
    """The judge, which asks no model."""
    return PassageJudge(levels)


def _example() -> Example:
    sample = Sample(
        id="example",
        source="example",
        prompt=(Message("user", "Where does the red road of Ulm lead?"),),
        ground_truth="Worms",
        verifier=exact.NAME,
        ability="search",
        tools=(text_search.NAME,),
    )
    return Example(sample, _searched("1. Ulm\nThe red road leads to Worms."), _searched("1. Trier\nA town."))


def _searched(output: str) -> Trajectory:
    call = Call(tool=text_search.NAME, arguments="{}", status="ok", output=output)
    return Trajectory(sample_id="example", source="example", calls=(call,))


EVIDENCE.add(
    NAME,
    EvidencePart(
        "The answer, as whole words, in the passages that searches returned.",
        opened,
        judges=_can_judge,
        lacking="no search among the tools, or no answer that can be looked for",
        reads_text=True,
        reads=(DOCUMENTS, FACT),
        example=_example,
    ),
)
