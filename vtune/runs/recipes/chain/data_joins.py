"""What a data recipe reads: its source files, benchmarks, and what policies are asked for pass rates."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vtune.config import find
from vtune.curate.duplicates import Contamination
from vtune.curate.item import Item, concerns
from vtune.errors import VtuneError
from vtune.rollout.prompts import STYLES
from vtune.runs.curate.pass_rate_rows import check_rows
from vtune.runs.curate.recipe import PassRate
from vtune.runs.recipes.chain.file_joins import NOBODY, broken, file_joins, policy_of
from vtune.runs.recipes.chain.joins import Join, by_source, calls_of, counted, listed, prompt_join
from vtune.runs.recipes.chain.nodes import Node
from vtune.runs.recipes.chain.policies import asked
from vtune.runs.recipes.chain.writers import Workshop, source_rows
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory


def data_joins(node: Node, shop: Workshop) -> Iterator[Join]:
    """The joins between a data recipe and whatever writes what it reads."""
    items: list[Item] = []
    for name, source in node.recipe.used.items():
        for file in source.files:
            yield from file_joins(node.title, file, node.recipe.records, shop)
        if not all(shop.writers(file) or Path(file).is_file() for file in source.files):
            continue  # already reported for its file
        writers = listed(sorted({p.by for file in source.files for p in shop.writers(file)}))
        try:
            rows = source_rows(node, name, shop)
        except VtuneError as error:
            yield broken(writers, node.title, f"source {name}", node.recipe.records, error)
            continue
        items += [Item(row, name, Path()) for row in rows]
        yield Join(writers, node.title, f"source {name}", _content(rows), _taken(source.tools, source.rename))
    for number, spec in enumerate(node.recipe.filters):
        reader = f"{node.title}:filters.{number}"
        if isinstance(spec, Contamination):
            yield from _benchmarks(reader, spec, shop)
        if isinstance(spec, PassRate):
            yield from _pass_rate(node, reader, spec, items, shop)


def _content(rows: list[Sample | Trajectory]) -> str:
    samples = [row for row in rows if isinstance(row, Sample)]
    if samples:
        return (
            f"{counted(s.verifier for s in samples)}; tools {by_source(samples, lambda s: listed(s.tools))}"
        )
    return f"traces: {calls_of([row for row in rows if isinstance(row, Trajectory)])}"


def _taken(tools: object, rename: bool) -> str:
    offered = "tools as the rows say" if tools is None else f"tools {list(tools) if tools else 'none'}"  # type: ignore[call-overload]
    return f"{offered}, {'one source' if rename else 'sources as the rows say'}"


def _benchmarks(reader: str, spec: Contamination, shop: Workshop) -> Iterator[Join]:
    for path in spec.data:
        yield from file_joins(reader, path, "samples", shop)
    for name in spec.suites if spec.suites != "all" else ():
        try:
            find(name, "eval_suites")
        except VtuneError as error:
            yield broken(NOBODY, reader, "benchmark", name, error)
        else:
            yield Join(f"eval/{name}", reader, "benchmark", name, name)


def _pass_rate(node: Node, reader: str, spec: PassRate, items: list[Item], shop: Workshop) -> Iterator[Join]:
    """Whether the filter's rollouts know what their verifiers need, and can be scored."""
    yield policy_of(reader, spec.model, shop)[0]
    looked = [item for item in items if concerns(spec, item)]
    if not looked:
        why = f"no row has one of the names {listed(list(spec.rows))}"
        yield Join(
            node.title, reader, "rows", "no row", str(spec.rows), "note", why, "see the names in `rows`"
        )
        return
    written = counted(item.sample.verifier for item in looked)
    judge = "none" if spec.judge is None else spec.judge.model
    read = f"judge {judge}; verifier_parm {dict(spec.verifier_parm)}"
    try:
        check_rows(spec, looked)
    except VtuneError as error:
        yield broken(node.title, reader, "verifiers", read, error)
    else:
        yield Join(node.title, reader, "verifiers", written, read)
    samples = [
        replace(
            item.sample,
            tools=item.sample.tools if spec.tools is not None else (),
            verifier_parm={**item.sample.verifier_parm, **spec.verifier_parm},
        )
        for item in looked
    ]
    style = spec.rollout.prompt
    try:
        posed = [one for sample in samples for one in asked(sample, style, ())]
    except VtuneError as error:
        yield broken(node.title, reader, "prompt", style, error)
        return
    # A tiny model answers as its traces taught it, so the prompt need not describe that.
    if not STYLES[style].bare:
        yield prompt_join(node.title, reader, style, posed)
