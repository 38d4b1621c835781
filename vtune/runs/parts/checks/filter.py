"""What a filter promises, tested on a few rows passed through it as in `vtune curate`."""

import copy
import json
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from vtune.curate.filters import FILTERS, FilterPart, Records
from vtune.curate.item import Item, Record, Selected
from vtune.errors import DataError
from vtune.parts import OURS
from vtune.runs.curate.filtering import filter_rows
from vtune.runs.curate.funnel import Ledger
from vtune.runs.curate.recipe import DataRecipe
from vtune.runs.curate.results import Results
from vtune.runs.curate.rows import Rows
from vtune.runs.curate.workers import looking
from vtune.runs.parts.checks.check import Broken, Check, in_time, question, quickest, section_of, tried
from vtune.runs.parts.checks.model import answering
from vtune.schema.message import Message
from vtune.schema.parquet import write_samples, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.verifiers import exact

TIMES = 5
"""Times that each row is tested; the quickest counts."""
SLOWEST_ROW = 0.1
"""Seconds per row at most, ours: at that rate 100,000 rows take one processor three hours."""

TOKENS = 8
"""Tokens of a trace that was never generated, so that a call that a row brings has a place."""
KNOWN = {field.name for field in fields(Sample)} & {field.name for field in fields(Trajectory)}
"""Fields that both kinds of rows have."""

ONE_BY_ONE = "not tested: the filter looks at one row at a time"
ASKS = "not tested: a model or a person decides"


class _Trial:
    """A filter, and the rows that it brings.

    Args:
        name: Name of the filter.
        folder: Empty, for files that its settings name.
        url: URL of the model that it asks; empty if it asks none.
    """

    def __init__(self, name: str, folder: Path, url: str) -> None:
        self.name = name
        self.part: FilterPart = FILTERS[name]
        self.rows = [self.part.keeps, *self.part.beside, self.part.drops]
        self._folder = folder
        self._url = url
        self._first: dict[Records, Mapping[int, Any]] = {}

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """A recipe's settings for it."""
        example = self.part.example
        made = example(self._folder, self._url) if callable(example) else example
        return {"filter": self.name, **made}

    @cached_property
    def kinds(self) -> Sequence[Records]:
        """The kinds of rows that it can be tested on."""
        if all(key in KNOWN for row in self.rows for key in row):
            return self.part.looks_at
        return ("samples",) if "samples" in self.part.looks_at else self.part.looks_at

    def section(self, **more: object) -> Selected:
        """Its section with the values of its example."""
        return section_of(self.part.section, {**self.values, **more}, "give FilterPart an `example`")

    def records(self, kind: Records, order: Sequence[int]) -> list[Record]:
        """Its rows, by number; rows without an id get different ones."""
        name = "id" if kind == "samples" else "sample_id"
        return [replace(_plain(kind), **{name: f"check/{number}", **self.rows[number]}) for number in order]

    def items(self, kind: Records) -> list[Item]:
        """Its rows, in order."""
        found = self.records(kind, range(len(self.rows)))
        return [Item(record, record.source, Path()) for record in found]

    def dropped(self, kind: Records, order: Sequence[int]) -> Mapping[int, Any]:
        """Number of a row -> the reason why a curation drops it, for rows in a given order."""
        self.section()
        if self.part.how is None and self.name not in OURS[FILTERS.kind]:
            raise Broken("`how` is None", "give a function, or a Corpus")
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            numbers = self._write(kind, order, out)
            sources = {source: {"files": (str(out / f"{source}.parquet"),)} for source in numbers}
            said = {"records": kind, "sources": sources, "filters": [self.values]}
            recipe = section_of(DataRecipe, said, "correct FilterPart")
            rows, columns = Rows(kind, recipe.used), ["valid", self.name]
            with (
                Results(out / "reviews.jsonl") as reviews,
                looking("local") as looks,
                Ledger(rows, columns, out / "drops.jsonl", recipe.seed) as ledger,
            ):
                filter_rows(recipe, rows, ledger, looks, reviews, out, show=False)
            # A reason may name another row by its file, whose path differs the next time.
            written = (out / "drops.jsonl").read_text("utf-8").replace(f"{out}/", "")
            lines = [json.loads(line) for line in written.splitlines()]
        for line in lines:
            if line["filter"] != self.name:
                raise Broken(f"a row cannot be used: {line['reason']}", "correct `keeps`, `drops`, `beside`")
        return {numbers[line["source"]][line["row"]]: line["reason"] for line in lines}

    def _write(self, kind: Records, order: Sequence[int], out: Path) -> dict[str, list[int]]:
        """Write one file per source; return the numbers of the rows in each."""
        numbers: dict[str, list[int]] = defaultdict(list)
        written: dict[str, list[Any]] = defaultdict(list)
        for number, record in zip(order, self.records(kind, order), strict=True):
            numbers[record.source].append(number)
            written[record.source].append(record)
        write: Callable[[Path, Any], int] = write_samples if kind == "samples" else write_trajectories
        for source, records in written.items():
            write(out / f"{source}.parquet", records)
        return numbers

    def first(self, kind: Records) -> Mapping[int, Any]:
        """What is dropped from the rows in their original order, before the filter has seen any others."""
        if kind not in self._first:
            self._first[kind] = self.dropped(kind, range(len(self.rows)))
        return self._first[kind]

    def keeps(self) -> str:
        for kind in self.kinds:
            if 0 in self.first(kind):
                raise Broken(
                    f"the filter drops the row of `keeps`: {self.first(kind)[0]}",
                    "return None for this row, or give another `keeps`",
                )
        return f"kept ({' and '.join(self.kinds)})"

    def drops(self) -> str:
        alike = [number for number, row in enumerate(self.rows) if row == self.part.drops]
        for kind in self.kinds:
            found = self.first(kind)
            gone = [found[number] for number in alike if number in found]
            if not gone and not self.part.drops:
                raise Broken("there is no example of a row to drop", "give FilterPart one in `drops`")
            if not gone:
                raise Broken(
                    "the filter keeps the row of `drops`", "return the reason to drop this row, a text"
                )
            for why in found.values():
                if not isinstance(why, str) or not why.strip():
                    raise Broken(f"the reason to drop a row is {why!r}", "return the reason as a text")
        return str(gone[0])

    def same(self) -> str:
        """A rule must not even depend on the rows before it."""
        order = list(range(len(self.rows)))
        if self.part.rule is not None:
            order.reverse()
        for kind in self.kinds:
            first, again = self.first(kind), self.dropped(kind, order)
            for number in order:
                if first.get(number) != again.get(number):
                    raise Broken(
                        f"{first.get(number)!r} and then {again.get(number)!r} for one row",
                        "keep no state between rows, and use only the random generator that is given",
                    )
        return f"{len(order)} rows, twice"

    def direct(self, items: Sequence[Item]) -> Mapping[int, Any]:
        """What it drops without a curation around it."""
        section = self.section()
        if self.part.corpus is not None:
            keys = [(item.source, self.part.corpus.key(section, item)) for item in items]
            return self.part.corpus.decide(section, keys, Random(0))
        assert self.part.rule is not None
        return {number: _reason(self.part.rule, section, item) for number, item in enumerate(items)}

    def unchanged(self) -> str:
        """If a filter changed a row, the next filters would see that."""
        if self.part.how is None:
            return ASKS
        for kind in self.kinds:
            items = self.items(kind)
            before = copy.deepcopy(items)
            self.direct(items)
            if items != before:
                raise Broken("the filter changed a row", "copy what you change")
        return f"{len(self.rows)} rows"

    def of_nothing(self) -> str:
        if self.part.corpus is None:
            return ONE_BY_ONE
        found = self.part.corpus.decide(self.section(), [], Random(0))
        if found:
            raise Broken(
                f"{len(found)} drop(s), although there are no rows", "return {} where there are no rows"
            )
        return "drops none"

    def strict(self) -> str:
        self.section()
        try:
            self.section(no_such_key=1)
        except Broken:
            own = [key for key in self.part.section.model_fields if key not in Selected.model_fields]
            return f"own keys: {', '.join(own) or 'none'}"
        raise Broken(
            "the section accepts an unknown key", "do not change `extra` of the section's model_config"
        )

    def elsewhere(self) -> str:
        section = self.section()
        if pickle.loads(pickle.dumps(section)) != section:
            raise Broken(
                "the section is different after pickling",
                "define the section's class at the top level of the file",
            )
        if self.part.corpus is None:
            return "the section can be sent"
        for kind in self.kinds:
            keys = [(item.source, self.part.corpus.key(section, item)) for item in self.items(kind)]
            sent = pickle.loads(pickle.dumps(keys))
            here, there = (self.part.corpus.decide(section, one, Random(0)) for one in (keys, sent))
            if here != there:
                raise Broken(
                    "the filter drops other rows when the keys were pickled", "use plain values as keys"
                )
        return "the section and the keys can be sent"

    def fast(self) -> str:
        if self.part.how is None:
            return ASKS
        items = self.items(self.kinds[0])
        seconds = quickest(TIMES, lambda: self.direct(items)) / len(items)
        return in_time(seconds, SLOWEST_ROW, "a row", "prepare only once what is the same for all rows")


def _plain(kind: Records) -> Record:
    """A plain row of a kind: a question, or a trace that answers at once."""
    asked = replace(question(), verifier=exact.NAME)
    if kind == "samples":
        return asked
    return Trajectory(
        sample_id=asked.id,
        source=asked.source,
        messages=(replace(asked.prompt[0], images=(0,)), Message("assistant", "<answer>A</answer>")),
        images=asked.images,
        token_ids=(0,) * TOKENS,
        loss_mask=(False,) * TOKENS,
        logprobs=(None,) * TOKENS,
        answer="A",
    )


def _reason(rule: Callable[[Any, Item], Any], section: Selected, item: Item) -> Any:
    try:
        return rule(section, item)
    except DataError as error:
        return error.what


def check_filter(name: str) -> list[Check]:
    """It keeps and drops the rows that it should, each drop has a reason, and its section is strict."""
    says = FILTERS[name].says
    model = nullcontext("") if says is None else answering(says)
    with model as url, tempfile.TemporaryDirectory() as folder:
        trial = _Trial(name, Path(folder), url)
        return [
            tried("a good row passes", trial.keeps),
            tried("a bad row is dropped with a reason", trial.drops),
            tried("the same row has the same result", trial.same),
            tried("rows are not changed", trial.unchanged),
            tried("no rows, no drops", trial.of_nothing),
            tried("the section refuses unknown keys", trial.strict),
            tried("section and keys cross processes", trial.elsewhere),
            tried("fast enough", trial.fast),
        ]
