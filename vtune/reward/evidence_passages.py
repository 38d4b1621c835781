"""The evidence judge for searches: a call shows the target if a returned passage contains the answer.

Only tools that search are believed: what a policy's own code prints is its own writing.
"""

import re
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from vtune.errors import DataError
from vtune.judge.client import JudgeClient
from vtune.reward.evidence_judge import EVIDENCE, EvidencePart, Example
from vtune.reward.recipe import EvidenceLevels
from vtune.reward.searches import SEARCHES, asked
from vtune.reward.written import without_accents, written
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.schema.verdict import Verdict
from vtune.tools import TOOLS, image_search, text_search
from vtune.tools.python import NAME as PYTHON
from vtune.tools.scripts import is_spaced, plain, spelled
from vtune.tools.text_search import CUT
from vtune.tools.tool import SOURCES
from vtune.verifiers import exact
from vtune.verifiers.exact import normalise

NAME = "passages"

NOTHING = ("", text_search.NOTHING, image_search.NOTHING)
"""What a search returns that found nothing."""

SHORTEST = 3
"""Fewest characters of an answer that is looked for in any passage, as `spelled`; ours: a digit or "no" is in
most of them. In scripts without spaces, two characters are enough: they are mostly a word."""

_ARTICLE = re.compile(r"\s*(?:an?|the)\s+(?=[^\W\d_])", re.IGNORECASE)
"""An article before the words of an answer; "The 1975" is not 1975."""

_INNER = re.compile(r"(?<=[^\W\d_])[.'\u2019-](?=[^\W\d_])")
"""Punctuation between letters that an answer may also be written without: D.C. and DC."""
_INNER_OF_PASSAGE = re.compile(r"(?<=[^\W\d_])[.-](?=[^\W\d_])")
"""That of a passage: "she'll" is no shell."""

_ADDRESSES = re.compile(rf"\n{SOURCES}(?:\n\w+://[^\n]*)+\Z")
"""What our own tools append to what the policy saw (`vtune.tools.tool.shown`)."""

DOCUMENTS = "documents"
"""The key of `extra_info` with the titles of the documents that hold the answer; without it, and in a
summary, which has no title, any may."""

FACT = "atomic_fact"
"""The key of `extra_info` with the intermediate entity of the question (SimpleVQA): only passages that name
it count."""

_HEADS = {
    text_search.NAME: re.compile(r"(?:\A|\n\n)(\d{1,4})\. ", re.ASCII),
    image_search.NAME: re.compile(r"(?:\A|\n)(\d{1,4})\. ", re.ASCII),
}
"""The number before a passage: of texts behind an empty line, of pictures on a line of its own."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """Consecutive numbers 1, 2, …, from its last one."""

    worth: tuple[int, int]
    """How many stand before a known title, and how many before a line with text under it."""
    head: re.Match[str]
    before: "_Chain | None"

    def grown(self, worth: tuple[int, int], head: re.Match[str]) -> "_Chain":
        """With one number more."""
        return _Chain((self.worth[0] + worth[0], self.worth[1] + worth[1]), head, self)


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


class _Found(NamedTuple):
    """What a search returned."""

    numbered: bool
    """Whether passages are numbered; else the text is a summary, which has no titles."""
    passages: Sequence[str]
    """Without their numbers."""
    new: Sequence[str] = ()
    """Those that no earlier search returned: a passage is rewarded once."""
    guessed: bool = False
    """The query names the answer, and nothing before it did."""


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
        nothing was searched for, found or new, else `miss`.

        Raises:
            DataError: If the call is of a tool that nobody knows: whether it searched, there is no saying.
        """
        call = trajectory.calls[k]
        if call.tool not in TOOLS and call.tool not in sample.tools:
            known = ", ".join(f"`{name}`" for name in SEARCHES if name in sample.tools)
            raise DataError(
                f"the sample offers no tool {call.tool!r:.60}", fix=f"name a search as it does: {known}"
            )
        if call.tool not in SEARCHES:
            return Verdict(0.0, "not a search")
        found = self._found(sample, trajectory, k)
        if not found.new:
            return Verdict(0.0, "nothing new was found" if found.passages else "nothing was found")
        held = _held(sample, found)
        if held is not None:
            return Verdict(self._levels.full, f"full: a returned passage holds {held!r}")
        if (fact := _fact(sample)) and any(_names(passage, fact) for passage in found.new):
            return Verdict(self._levels.partial, f"partial: a returned passage names {sample.extra[FACT]!r}")
        if found.guessed:
            return Verdict(self._levels.miss, "miss: the query names the answer, which nothing had shown")
        return Verdict(self._levels.miss, "miss: no returned passage holds the answer")

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether a returned passage contains the answer."""
        return _held(sample, self._found(sample, trajectory, k)) is not None

    async def shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Never: text has no size."""
        return False

    def _found(self, sample: Sample, trajectory: Trajectory, k: int) -> _Found:
        """What call `k` returned. Calls are judged in turn: a trajectory is read once for all of them."""
        read = self._read
        if read is None or read[0] is not sample or read[1] is not trajectory:
            read = self._read = (sample, trajectory, _all_found(sample, trajectory.calls))
        return read[2][k]


def holding(sample: Sample, call: Call, before: Sequence[Call] = ()) -> str | None:
    """The spelling of the answer that a passage of a search contains; None if none does.

    Args:
        sample: What is asked.
        call: The call.
        before: Earlier ones of its trajectory: what they returned is not new.
    """
    return _held(sample, _all_found(sample, (*before, call))[-1])


def _held(sample: Sample, found: _Found) -> str | None:
    if found.guessed:
        return None
    known, fact = _titles(sample), _fact(sample)
    titles = known if found.numbered else frozenset()
    answers = _answers(sample, least=1 if titles or fact else SHORTEST)
    in_titles = _answers(sample, least=SHORTEST)  # a digit stands in many of them
    for passage in found.new:
        title, _, text = passage.partition("\n")
        if (titles and _title(title) not in titles) or (fact and not _names(passage, fact)):
            continue
        for spellings, where in ((answers, text), (in_titles, passage)) if titles else ((answers, passage),):
            words = _of_passage(where)
            for answer, forms in spellings.items():
                if forms.are_held_by(words):
                    return answer
    return None


def _all_found(sample: Sample, calls: Sequence[Call]) -> list[_Found]:
    """What each call returned, in the light of those before it.

    A query that names the answer finds passages about it, right or wrong. So it shows nothing, unless the
    question or an earlier call named the answer first, or documents are known: those hold it. A summary often
    repeats what it did not find; so there no earlier call is an excuse.
    """
    titles = _titles(sample)
    answers = _answers(sample, least=1 if titles or _fact(sample) else SHORTEST).values()
    given = in_question = _asks_for(answers, sample.question)
    seen: set[str] = set()
    every = []
    for call in calls:
        found = _returned(call, titles)
        excused = bool(titles) or given if found.numbered else in_question
        guessed = not excused and _asks_for(answers, " ".join(asked(call)))
        texts = {passage: spelled(passage) for passage in found.passages}
        new = [passage for passage, words in texts.items() if not _is_old(passage, words, seen)]
        every.append(found._replace(new=new, guessed=guessed))
        if not guessed:
            seen.update(texts.values())
            given = given or _told(call, answers)
    return every


def _is_old(passage: str, words: str, seen: Set[str]) -> bool:
    """Whether earlier searches returned a passage, or more of it where it was cut."""
    return words in seen or (passage.endswith(CUT) and any(old.startswith(words) for old in seen))


def _asks_for(answers: Collection[_Forms], text: str) -> bool:
    """Whether a query or a question names the answer, in any order and case of its words."""
    said = _of_passage(text)
    words = {word for forms in said for form in forms for word in form.casefold().split()}
    return any(
        forms.are_held_by(said)
        or any(
            len(form) > SHORTEST and is_spaced(form) and words.issuperset(form.casefold().split())
            for form in forms.folded | forms.cased | forms.bare
        )
        for forms in answers
    )


def _told(call: Call, answers: Collection[_Forms]) -> bool:
    """Whether a call returned the answer in words that are not the policy's own."""
    if call.tool == PYTHON or call.status != "ok":
        return False
    said = _of_passage(_ADDRESSES.sub("", call.output))
    return any(forms.are_held_by(said) for forms in answers)


def _returned(call: Call, known: Set[str]) -> _Found:
    text = _ADDRESSES.sub("", call.output)
    if call.tool not in SEARCHES or call.status != "ok" or text.strip() in NOTHING:
        return _Found(False, [])
    heads = _heads(text, _HEADS[call.tool], known)
    ends = [head.start() for head in heads[1:]] + [len(text)]
    parts = [text[head.end() : end] for head, end in zip(heads, ends, strict=True)] if heads else [text]
    return _Found(bool(heads), [part for part in parts if part.strip()])


def _heads(text: str, number: re.Pattern[str], known: Set[str]) -> list[re.Match[str]]:
    """The numbers before passages: 1 at the start of the text, then each the next one.

    Lists within a passage have numbers, too. Where one may be either, the numbers are taken before which most
    titles are known, then most lines have text under them, as a title has; then the first.
    """
    chains: dict[int, _Chain] = {}  # by their last number
    for head in number.finditer(text):
        this = int(head[1])
        before = chains.get(this - 1)
        if before is None and (this > 1 or head.start() > 0):
            continue
        line, _, rest = text[head.end() :].partition("\n")
        worth = (_title(line) in known, bool(rest) and not rest[0].isspace())
        chain = _Chain(worth, head, None) if before is None else before.grown(worth, head)
        if this not in chains or chain.worth > chains[this].worth:
            chains[this] = chain
    best = max(chains.items(), key=lambda chain: (chain[1].worth, chain[0]), default=(0, None))[1]
    found = []
    while best is not None:
        found.append(best.head)
        best = best.before
    return found[::-1]


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


def _titles(sample: Sample) -> frozenset[str]:
    titles = sample.extra.get(DOCUMENTS)
    return frozenset(map(_title, titles)) if isinstance(titles, list | tuple) else frozenset()


def _title(text: str) -> str:
    return normalise(plain(text))


def _fact(sample: Sample) -> str:
    """The words of the intermediate fact; empty if none is known."""
    fact = sample.extra.get(FACT)
    return spelled(written(fact)) if isinstance(fact, str) else ""


def _can_judge(sample: Sample) -> bool:
    """Whether a search is offered, and the answer is long enough for the passages that may contain it."""
    least = 1 if _titles(sample) or _fact(sample) else SHORTEST
    return bool(set(SEARCHES) & set(sample.tools)) and bool(_answers(sample, least=least))


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
