"""What a filter promises."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from vtune.curate.filters import FILTERS
from vtune.curate.item import Item
from vtune.runs.parts.checks.check import SHOWN, Broken, Check, tried


def check_filter(name: str) -> list[Check]:
    """It keeps the row that it says it keeps, and drops the other, with a reason."""
    part = FILTERS[name]

    def reason(values: Mapping[str, Any]) -> str | None:
        spec = part.section.model_validate({"filter": name, **part.example})
        items = [Item(replace(SHOWN, **row), "check", Path()) for row in (part.keeps, part.drops)]
        number = int(values is part.drops)
        if part.rule is not None:
            return part.rule(spec, items[number])
        if part.corpus is None:
            raise Broken("`how` is None: give a function, or a Corpus")
        keys = [("check", part.corpus.key(spec, item)) for item in items]
        return part.corpus.decide(spec, keys, Random(0)).get(number)

    def keeps() -> str:
        why = reason(part.keeps)
        if why is not None:
            raise Broken(f"it drops the row of `keeps`: {why}")
        return "kept"

    def drops() -> str:
        why = reason(part.drops)
        if not isinstance(why, str) or not why:
            raise Broken(f"it gives {why!r} for the row of `drops`: give the reason as a text")
        return why

    return [tried("a good row passes", keeps), tried("a bad row is dropped with a reason", drops)]
