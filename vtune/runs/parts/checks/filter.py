"""What a filter promises."""

import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from vtune.curate.filters import FILTERS, FilterPart
from vtune.curate.item import Item, Selected
from vtune.runs.parts.checks.check import SHOWN, Broken, Check, in_time, tried
from vtune.schema.trajectory import Trajectory

TIMES = 20
"""Rows over which the time is averaged."""
SLOWEST_ROW = 0.1
"""Seconds of a row at most, ours: 100,000 rows take three hours of a processor at that."""


TRACE = Trajectory(sample_id=SHOWN.id, source=SHOWN.source, messages=SHOWN.prompt, images=SHOWN.images)
"""A trace of which nothing is known but its question."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A filter, and the two rows that it brings."""

    name: str
    part: FilterPart

    def section(self, **more: object) -> Selected:
        return self.part.section.model_validate({"filter": self.name, **self.part.example, **more})

    def reason(self, values: Mapping[str, Any]) -> str | None:
        spec = self.section()
        plain = SHOWN if "samples" in self.part.looks_at else TRACE
        items = [Item(replace(plain, **row), "check", Path()) for row in (self.part.keeps, self.part.drops)]
        number = int(values is self.part.drops)
        if self.part.rule is not None:
            return self.part.rule(spec, items[number])
        if self.part.corpus is None:
            raise Broken("`how` is None", "give a function, or a Corpus")
        keys = [("check", self.part.corpus.key(spec, item)) for item in items]
        return self.part.corpus.decide(spec, keys, Random(0)).get(number)

    def keeps(self) -> str:
        why = self.reason(self.part.keeps)
        if why is not None:
            raise Broken(f"it drops the row of `keeps`: {why}", "return None for it, or give another `keeps`")
        return "kept"

    def drops(self) -> str:
        why = self.reason(self.part.drops)
        if not isinstance(why, str) or not why:
            raise Broken(f"it gives {why!r} for the row of `drops`", "give the reason as a text")
        return why

    def same(self) -> str:
        for row in (self.part.keeps, self.part.drops):
            first, again = self.reason(row), self.reason(row)
            if first != again:
                raise Broken(f"{first!r} and then {again!r} for one row", "keep no state between rows")
        return "both rows, twice"

    def strict(self) -> str:
        try:
            self.section(no_such_key=1)
        except ValueError:
            own = [key for key in self.part.section.model_fields if key not in Selected.model_fields]
            return f"own keys: {', '.join(own) or 'none'}"
        raise Broken("it takes an unknown key", "leave `extra` of its model_config as it is")

    def elsewhere(self) -> str:
        spec = self.section()
        if pickle.loads(pickle.dumps(spec)) != spec:
            raise Broken("another section comes out of a pickle", "define its class at the top of the file")
        return "its section can be sent"

    def fast(self) -> str:
        began = time.perf_counter()
        for _ in range(TIMES):
            self.reason(self.part.drops)
        seconds = (time.perf_counter() - began) / TIMES
        return in_time(seconds, SLOWEST_ROW, "a row", "prepare what is the same for all rows once")


def check_filter(name: str) -> list[Check]:
    """It keeps the row that it says it keeps, drops the other with a reason, and is read strictly."""
    trial = _Trial(name, FILTERS[name])
    return [
        tried("a good row passes", trial.keeps),
        tried("a bad row is dropped with a reason", trial.drops),
        tried("the same row fares the same", trial.same),
        tried("its section is strict", trial.strict),
        tried("its section crosses processes", trial.elsewhere),
        tried("fast enough", trial.fast),
    ]
