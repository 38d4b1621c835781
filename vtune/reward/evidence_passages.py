"""The evidence judge for searches: a call shows the target if a returned passage contains the answer.

Only search tools are believed: what the policy's own code prints is its own writing.
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
"""Fewest characters, after `spelled`, of an answer that is looked for in any passage; ours: most passages
contain a digit or "no". In scripts without spaces, two characters are enough: they are mostly a word."""

_ARTICLE = re.compile(r"\s*(?:an?|the)\s+(?=[^\W\d_])", re.IGNORECASE)
"""An article before the words of an answer; not the one in "The 1975", which is not the year 1975."""

_INNER = re.compile(r"(?<=[^\W\d_])[.'\u2019-](?=[^\W\d_])")
"""Punctuation between letters that an answer may also be written without: D.C. and DC."""
_INNER_OF_PASSAGE = re.compile(r"(?<=[^\W\d_])[.-](?=[^\W\d_])")
"""The same for passages, without apostrophes: "she'll" is not "shell"."""

DOCUMENTS = "documents"
"""Key of `extra_info` with the titles of the documents that hold the answer. Without it, any document may
hold it; so may a summary, which has no title."""

FACT = "atomic_fact"
"""Key of `extra_info` with the intermediate entity of the question (SimpleVQA): only passages that name
it count."""


class _Forms(NamedTuple):
    """The words of an answer or of a passage, in each way they may be written."""

    folded: Set[str]
    """In lower case."""
    cased: Set[str]
    """With case: without punctuation and articles, only case tells W.H.O. from who, The Doors from doors."""
    bare: Set[str]
    """With case but without accents: names are written that way, and Pelé is not the verb "pele"."""

    def are_held_by(self, passage: "_Forms") -> bool:
        """Whether a passage contains any of them as whole words."""
        return any(
            f" {form} " in f" {words} "
            for forms, texts in zip(self, passage, strict=True)
            for form in forms
            for words in texts
        )


class _Sought(NamedTuple):
    """What to look for in passages."""

    titles: frozenset[str]
    """Titles of the documents that hold the answer; empty if none are known."""
    fact: str
    answers: Mapping[str, _Forms]
    """Looked for in the text of a named document, or next to the fact."""
    long_answers: Mapping[str, _Forms]
    """Looked for everywhere else, titles included: many of them contain a digit."""


class _Passage(NamedTuple):
    """A passage or a summary, and what it shows."""

    words: str
    is_cut: bool
    answer: str
    """The spelling of the answer that it contains; empty if it contains none."""
    fact: bool
    """Whether it names the intermediate fact."""

    @property
    def level(self) -> int:
        """How much it shows: 2 the answer, 1 only the fact, 0 neither."""
        return 2 if self.answer else int(self.fact)


class _Found(NamedTuple):
    """What a search returned."""

    passages: Sequence[_Passage]
    new: Sequence[_Passage]
    """Those that no earlier search returned: each passage is rewarded only once."""
    guessed: bool
    """The query names the answer although nothing before it did."""
    known: bool
    """It is a summary that shows, in other words, no more than an earlier one."""

    @property
    def answer(self) -> str:
        """The spelling of the answer that it shows; empty if it shows none."""
        counts = not (self.guessed or self.known)
        return next((one.answer for one in self.new if one.answer), "") if counts else ""


@dataclass(slots=True)
class _Shown:
    """What the searches of a trajectory have shown so far."""

    texts: set[str] = field(default_factory=set)
    beginnings: dict[str, int] = field(default_factory=dict)
    """Truncated passages with their level: a longer version counts as new if it shows more."""
    summaries: int = 0
    """The highest level of any summary so far."""

    def has(self, one: _Passage) -> bool:
        """Whether a passage, or enough of it, has already been shown."""
        return (
            one.words in self.texts
            or (one.is_cut and any(text.startswith(one.words) for text in self.texts))
            or any(one.words.startswith(text) and one.level <= n for text, n in self.beginnings.items())
        )

    def add(self, passages: Sequence[_Passage], *, numbered: bool) -> None:
        """Record what a search returned."""
        self.texts.update(one.words for one in passages)
        self.beginnings |= {one.words: one.level for one in passages if one.is_cut and one.level}
        if not numbered:
            self.summaries = max([self.summaries, *(one.level for one in passages)])


class PassageJudge:
    """Looks for the answer in what searches returned: as whole words, or as a substring in scripts without
    spaces between words; only in the gold documents if these are known. A leading article and punctuation
    between letters are ignored if the letters match in case.
    """

    def __init__(self, levels: EvidenceLevels) -> None:
        self._levels = levels
        self._read: tuple[Sample, Trajectory, list[_Found]] | None = None

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """`full` if a passage contains the answer, `partial` if it only names the intermediate fact, 0 if
        nothing (new) was found or the call is of our own tools but not a search, else `miss`.

        Raises:
            DataError: If the tool is unknown, so that nobody can say whether it searched.
        """
        call = trajectory.calls[k]
        if call.tool not in TOOLS and call.tool not in sample.tools:
            known = ", ".join(f"`{name}`" for name in SEARCHES if name in sample.tools)
            raise DataError(
                f"the sample offers no tool {call.tool!r:.60}",
                fix=f"name a search as the sample does: {known}",
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
        """What call `k` returned. Calls are judged in order, so a trajectory is read once for all of them."""
        read = self._read
        if read is None or read[0] is not sample or read[1] is not trajectory:
            read = self._read = (sample, trajectory, _all_found(sample, trajectory.calls))
        return read[2][k]


def _all_found(sample: Sample, calls: Sequence[Call]) -> list[_Found]:
    """What each call returned, given those before it.

    A query that names the answer finds passages about it, right or wrong. So its results show nothing, unless
    the question or an earlier call named the answer first, or the gold documents are known. A summary often
    repeats the query even if it found nothing, so for summaries earlier calls are no excuse.
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
    """What a passage shows: the answer counts only in a named document, and next to the fact."""
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

    "who was the …" does not ask for "The Who". A single word that is only part of the answer, as Band is of
    The Band, must match in case.
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
    """Whether some consecutive words of a text are exactly these words, in any order."""
    wanted, size = sorted(words), len(words)
    return set(words).issubset(text) and any(
        sorted(text[start : start + size]) == wanted for start in range(len(text) - size + 1)
    )


def _told(call: Call, answers: Collection[_Forms]) -> bool:
    """Whether a call returned the answer in words other than the policy's own."""
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
    """The forms of an answer to look for: those that are long enough, also without a leading article.

    Without the article, always at least one character more than `SHORTEST` is required: "The Who" is not just
    any Who. If several words are left, case is ignored. Only names are also looked for without accents.
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
    """The spellings of the answer that are long enough to look for, each with its forms."""
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
    """Whether a search tool is offered, and the answer is long enough to look for."""
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
