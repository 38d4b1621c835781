"""Queries: which trajectories of an index are shown, and in which order.

    source:lens right:no calls>2 reward<0.5 flag:whole_image -stop:length sort:-reward "left of"

Words are searched for in the conversation. A name with an operator is compared with a fact; several values,
`source:lens,shapes`, match any of them, `none` matches unknown values, a leading `-` negates. A text in
quotes is taken literally: `answer:"none"`, `source:"a,b"`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vtune.errors import RecipeError, nearest
from vtune.schema.labels import Judgement
from vtune.schema.trajectory import Flag, Status, StopReason
from vtune.view.search import holds

Operator = Literal[":", "<", "<=", ">", ">="]

TEXTS = ("key", "source", "sample", "stop", "answer")
YES_NO = ("right", "faithful")
NUMBERS = (
    *("step", "group", "rollout", "reward", "accuracy", "format", "tool", "consistency", "iou", "advantage"),
    *("calls", "turns", "pictures", "tokens"),
)
WORDS: Mapping[str, str] = {"flag": "flags", "status": "statuses", "call": "outcomes"}
CALL = "call"
FLAG = "flag"
LABEL = "label"
SORT = "sort"
NAMES = (*TEXTS, *YES_NO, *NUMBERS, *WORDS, LABEL, SORT)
UNKNOWN = "none"
CLOSED: Mapping[str, Sequence[str]] = {
    "status": get_args(Status),
    "stop": get_args(StopReason),
    LABEL: get_args(Judgement),
}
"""Facts with a fixed set of values: a misspelt one would match nothing, and its negation everything."""
OPEN = tuple(name for name in TEXTS if name not in CLOSED)
"""Facts that may be any text, even `none` or one with commas."""
USUAL: Mapping[str, str] = {"right": "right:yes", "wrong": "right:no", "faithful": "faithful:yes"}
"""What a user who writes only one of these words most likely means."""
MOST = 1_000
"""Limit on characters of a query (ours)."""

_DECIMAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?", re.IGNORECASE)
_TOKEN = re.compile(r'\s*(-?)(?:([a-z]+)(<=|>=|:|<|>|=))?("[^"]*"|[^\s"]+)')


@dataclass(frozen=True, slots=True)
class Term:
    """One condition."""

    name: str
    """Name of a fact; empty for words in the conversation."""
    operator: Operator
    values: tuple[str, ...]
    negated: bool = False
    quoted: bool = False
    """Its value is taken literally, even `none`."""


@dataclass(frozen=True, slots=True)
class Query:
    """All conditions together, and the order."""

    terms: tuple[Term, ...] = ()
    sort: str = ""
    """Name of a fact; empty keeps the order of the files."""
    descending: bool = False


def parse_query(text: str) -> Query:
    """The query that a text expresses.

    Raises:
        RecipeError: If it names an unknown fact, or holds a value that its fact cannot have.
    """
    if len(text) > MOST:
        raise RecipeError(f"a query has at most {MOST} characters", fix="shorten it")
    terms, sort, descending, at = [], "", False, 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise RecipeError(f"a quote is not closed in {text[at:].strip()!r}", fix='close it with "')
        at = found.end()
        minus, name, operator, value = found[1], found[2] or "", found[3] or ":", found[4]
        bare = value.strip('"')
        if name == SORT:
            sort, descending = _sort_key(bare.lstrip("-")), bare.startswith("-")
            continue
        if name and name not in NAMES:
            raise RecipeError(f"there is no fact `{name}`", where=text, fix=nearest(name, NAMES))
        # Only facts with free text can have a literal `none`, or a value with a comma.
        quoted = value.startswith('"') and name in OPEN
        values = (bare,) if not name or quoted else tuple(bare.split(","))
        asked: Any = ":" if operator == "=" else operator
        term = Term(name, asked, values, bool(minus), quoted)
        _check(term)
        terms.append(term)
    return Query(tuple(terms), sort, descending)


def select(table: pa.Table, query: Query, labels: Mapping[str, str]) -> pa.Array:
    """Row numbers that match a query, in its order.

    Args:
        table: The table of an index.
        query: The query.
        labels: Key of a trajectory -> its label.

    Raises:
        RecipeError: If a flag is queried that scoring does not know and no trajectory has.
    """
    mask: Any = None
    for term in query.terms:
        if term.name == FLAG:
            _check_values(term, dict.fromkeys([*get_args(Flag), *_words(table, FLAG)]))
        one = _mask(table, term, labels)
        one = pc.fill_null(one, False)
        one = pc.invert(one) if term.negated else one
        mask = one if mask is None else pc.and_(mask, one)
    if isinstance(mask, pa.ChunkedArray):
        # With no chunks at all, as for a run without trajectories, PyArrow before 26 would crash the process.
        mask = mask.combine_chunks()
    numbers = _all(table.num_rows) if mask is None else pc.indices_nonzero(mask)
    if not query.sort:
        return numbers
    values = table[query.sort].take(numbers)
    order = "descending" if query.descending else "ascending"
    return numbers.take(pc.array_sort_indices(values, order=order, null_placement="at_end"))


def hint_of(table: pa.Table, query: Query) -> str | None:
    """What to write instead if a query matches nothing and one of its words is a fact's name or value.

    Args:
        table: The table of an index.
        query: The query that matched nothing.
    """
    known = {**facets(table), **CLOSED}
    known[FLAG] = [*get_args(Flag), *known[FLAG]]
    known[CALL] = [*known[CALL], *(call.partition(":")[0] for call in known[CALL])]
    for word in _fruitless(table, query):
        written = f'"{word}"' if re.search(r"[\s,]", word) else word
        forms = [f"{name}:{written}" for name, values in known.items() if name != "step" and word in values]
        forms += [f"{word}:VALUE"] if word in NAMES else []
        forms = [USUAL[word.lower()]] if word.lower() in USUAL else forms
        if forms:
            meant = " or ".join(f"`{form}`" for form in forms)
            return f"`{word}` is looked for in the conversations; did you mean {meant}?"
    return None


def _fruitless(table: pa.Table, query: Query) -> Iterator[str]:
    """Words of a query that occur in no conversation, or that usually stand for a fact."""
    for term in query.terms:
        if term.name or term.negated:
            continue
        if term.values[0].lower() in USUAL or not pc.any(_mask(table, term, {})).as_py():
            yield term.values[0]


def of_sample(table: pa.Table, sample: str) -> pa.Table:
    """The rows of a sample, whatever characters its id contains: queries have no escapes."""
    return table.filter(pc.equal(table["sample"], sample))


def facets(table: pa.Table) -> dict[str, list[str]]:
    """The possible values of the facts that hold names, each in order."""
    found = {name: sorted(filter(None, pc.unique(table[name]).to_pylist())) for name in ("source", "stop")}
    found |= {name: _words(table, name) for name in WORDS}
    found["step"] = [str(step) for step in sorted(filter(_known, pc.unique(table["step"]).to_pylist()))]
    return found


def _words(table: pa.Table, name: str) -> list[str]:
    """The words that occur in the column of a fact, sorted."""
    texts = pc.unique(table[WORDS[name]]).to_pylist()
    return sorted({word for text in texts for word in (text or "").split()})


def _all(count: int) -> pa.Array:
    """Row numbers of a whole table, made without `pa.array`, which would load pandas in half a second."""
    numbers = np.arange(count, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(numbers)])


def _known(value: object) -> bool:
    return value is not None


def _sort_key(name: str) -> str:
    known = (*TEXTS, *YES_NO, *NUMBERS)
    if name not in known:
        raise RecipeError(f"cannot sort by `{name}`", fix=nearest(name, known))
    return name


def _check(term: Term) -> None:
    """Check that the values of a term suit its fact."""
    if term.name in CLOSED:
        _check_values(term, CLOSED[term.name])
    for value in term.values:
        if term.name in YES_NO and value not in ("yes", "no", UNKNOWN):
            raise RecipeError(f"`{term.name}` is yes, no or {UNKNOWN}, not {value!r}")
        if term.name in NUMBERS and value != UNKNOWN and _number(value) is None:
            raise RecipeError(f"`{term.name}` is a number, not {value!r}")
        if term.operator != ":" and (term.name not in NUMBERS or value == UNKNOWN):
            raise RecipeError(f"`{term.name}` cannot be compared by {term.operator}", fix="write `:`")


def _check_values(term: Term, known: Iterable[str]) -> None:
    names = [*known, UNKNOWN]
    for value in term.values:
        if value not in names:
            listed = ", ".join(f'"{one}"' if " " in one else one for one in names)
            raise RecipeError(f"`{term.name}` is never {value!r}", fix=f"it is one of {listed}")


def _number(text: str) -> float | None:
    return float(text) if _DECIMAL.fullmatch(text) else None


def _mask(table: pa.Table, term: Term, labels: Mapping[str, str]) -> Any:
    if not term.name:
        return holds(table["text"], term.values[0].lower())
    if term.name == LABEL:
        return _labelled(table, term.values, labels)
    return _any(_one(table, term, value) for value in term.values)


def _one(table: pa.Table, term: Term, value: str) -> Any:
    if term.name in WORDS:
        column = table[WORDS[term.name]]
        return (
            pc.equal(column, "") if value == UNKNOWN else pc.match_substring(column, _word(term.name, value))
        )
    column = table[term.name]
    if value == UNKNOWN and not term.quoted:
        return pc.is_null(column)
    if term.name in YES_NO:
        return pc.equal(column, value == "yes")
    if term.name in NUMBERS:
        return _COMPARED[term.operator](column, pa.scalar(float(value), pa.float64()).cast(_type(column)))
    return pc.equal(column, value)


def _word(name: str, value: str) -> str:
    """A word as stored in its column; calls can be named by tool, or by tool and outcome."""
    return f" {value}:" if name == CALL and ":" not in value else f" {value} "


def _type(column: pa.ChunkedArray) -> pa.DataType:
    # Facts are float32, but 0.1 is not: compare in the narrower type, so that reward:0.1 finds it.
    return column.type if pa.types.is_floating(column.type) else pa.float64()


def _labelled(table: pa.Table, values: Sequence[str], labels: Mapping[str, str]) -> Any:
    known = pc.is_in(table["key"], value_set=pa.array(list(labels), pa.string()))
    keys = [key for key, label in labels.items() if label in values]
    found = pc.is_in(table["key"], value_set=pa.array(keys, pa.string()))
    return pc.or_(found, pc.invert(known)) if UNKNOWN in values else found


def _any(masks: Any) -> Any:
    found: Any = None
    for mask in masks:
        mask = pc.fill_null(mask, False)
        found = mask if found is None else pc.or_(found, mask)
    return found


_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    ":": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
