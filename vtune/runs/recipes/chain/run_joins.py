"""What cold starts, training, sweeps, evaluations and audits read."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from vtune.config import find, load_recipe
from vtune.data.formats.samples import NAME as SAMPLES
from vtune.errors import RecipeError, VtuneError
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.evaluate.questions import read_questions
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.recipes.chain.file_joins import NOBODY, broken, file_joins, policy_of
from vtune.runs.recipes.chain.joins import Edge, Join, Reader, counted, listed
from vtune.runs.recipes.chain.nodes import Node, suites_named
from vtune.runs.recipes.chain.protocol import Policy, audit_join, credit_join, protocol_joins, traces_join
from vtune.runs.recipes.chain.writers import FEW, Product, Workshop
from vtune.runs.sweep.recipe import load_sweep
from vtune.runs.train.rl_recipe import RLRecipe, check_sizes
from vtune.runs.train.sft_recipe import SFTRecipe
from vtune.schema.message import Picture
from vtune.schema.parquet import columns, read_samples, read_trajectories, with_pictures
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

MOST = 4 * FEW * 20
"""Rows read from a file: all of a synthetic one, which has at most as many sources as any recipe."""


class Runs:
    """The recipes that train and evaluate, and the joins of each one.

    Args:
        nodes: All recipes of the walk.
        shop: Knows who writes what.
    """

    def __init__(self, nodes: Sequence[Node], shop: Workshop) -> None:
        self._nodes = {node.title: node for node in nodes}
        self._shop = shop
        self._following: list[str] = []
        self._rows = functools.cache(_rows)
        """The first rows of a file, cached: variants of a sweep share their files, and no file changes."""

    def joins(self, node: Node) -> Iterator[Join]:
        """The joins between one recipe and whatever writes what it reads."""
        if node.kind == "sft":
            yield from self._sft(node)
        elif node.kind == "rl":
            yield from self._rl(node)
        elif node.kind == "sweep":
            yield from self._sweep(node)
        elif node.kind == "eval":
            yield from self._eval(node)

    def _sft(self, node: Node) -> Iterator[Join]:
        recipe: SFTRecipe = node.recipe
        yield policy_of(node.title, recipe.model, self._shop)[0]
        for file in recipe.data:
            yield from file_joins(node.title, file, "traces", self._shop)
        for file, writer, found in self._read(recipe.data, "traces"):
            if isinstance(found, VtuneError):
                yield broken(writer, node.title, "traces", file, found)
                continue
            yield traces_join(writer, node.title, file, [row for row in found if isinstance(row, Trajectory)])
        yield from self._suites(node, node.recipe.model_dump(mode="json"), self._policy(node))

    def _rl(self, node: Node) -> Iterator[Join]:
        recipe: RLRecipe = node.recipe
        join, product = policy_of(node.title, recipe.model, self._shop)
        yield join
        yield from self._collision(node, product)
        for file in recipe.data:
            yield from file_joins(node.title, file, "samples", self._shop)
        for index in _indexes(recipe.tools):
            yield from file_joins(node.title, index, "index", self._shop)
        yield from self._trains(node.title, recipe, product)
        yield audit_join(node.title, recipe.reward, self._samples(recipe.data))
        yield from self._suites(node, recipe.model_dump(mode="json"), self._policy(node))

    def _collision(self, node: Node, product: Product | None) -> Iterator[Join]:
        """Two runs with the same folder: the second one refuses to start."""
        own = {p.path for p in self._shop.writers_of(node.title)}
        if product is not None and product.path in own and product.by != node.title:
            why = f"{product.by} and {node.title} write {product.path}: the second start is refused"
            fix = f"give the cold start its own folder in its header: --out {product.path}-sft"
            yield Join(product.by, node.title, "run folder", product.path, product.path, "break", why, fix)

    def _trains(self, name: str, recipe: RLRecipe, product: Product | None) -> Iterator[Join]:
        """The joins of a training recipe with its samples and with the cold start."""
        try:
            check_sizes(recipe, 1)
        except VtuneError as error:
            yield broken(name, name, "engine", f"engine {recipe.rollout.engine}", error)
        policy = self._of(product)
        reader = Reader(
            name,
            recipe.rollout,
            recipe.tools,
            recipe.reward,
            policy.taught,
            policy.cold_start,
            frozenset(tool for sample in self._samples(recipe.data) for tool in sample.tools),
            random=product is not None and product.node is None,
        )
        for file, writer, found in self._read(recipe.data, "samples"):
            if isinstance(found, VtuneError):
                yield broken(writer, name, "samples", file, found)
                continue
            samples = [row for row in found if isinstance(row, Sample)]
            yield from Edge(writer, reader, samples).joins()
            if recipe.credit is not None:
                yield credit_join(writer, name, recipe.credit, samples)

    def _sweep(self, node: Node) -> Iterator[Join]:
        """Every variant, as training reads it; variants that differ only in the update count as one."""
        base = self.base(node)
        if base is None:
            fix = "write the command into a comment: `#   vtune rl --recipe NAME --sweep " + f"{node.name}`"
            yield broken(
                NOBODY,
                node.title,
                "recipe",
                node.title,
                RecipeError("no command says which recipe it varies", fix=fix),
            )
            return
        if base.kind == "rl":
            yield from self._variants(node, base)
        yield from self._suites(node, node.recipe, replace(self._policy(base), name=node.title))

    def _variants(self, node: Node, base: Node) -> Iterator[Join]:
        try:
            plan = load_sweep(node.path, base.path, [])
        except VtuneError as error:
            yield broken(base.title, node.title, "variants", "", error)
            return
        names = list(plan.recipes)
        yield Join(base.title, node.title, "variants", base.title, listed(names))
        seen: list[Any] = [_read_by(base.recipe)]
        for name in names:
            recipe = plan.recipe_of(name, plan.sweep.seeds[0], node.prepared)
            if _read_by(recipe) in seen:
                continue
            seen.append(_read_by(recipe))
            title = f"{node.title}:{name}"
            join, product = policy_of(title, recipe.model, self._shop)
            yield join
            for file in recipe.data:
                yield from file_joins(title, file, "samples", self._shop)
            yield from self._trains(title, recipe, product)

    def _eval(self, node: Node) -> Iterator[Join]:
        suite: EvalSuite = node.recipe
        for index in _indexes(suite.tools):
            yield from file_joins(node.title, index, "index", self._shop)
        if suite.format == SAMPLES:
            for file in suite.data:
                yield from file_joins(node.title, file, "samples", self._shop)
        writer, samples = self._questions(node)
        if isinstance(samples, VtuneError):
            yield broken(writer, node.title, "questions", suite.format, samples)
            return
        policies = [self._named(node, command.value("--model")) for command in node.runs()]
        known = [policy for policy in policies if isinstance(policy, Policy)]
        yield from (join for join in policies if isinstance(join, Join))
        taught = known[0] if known else Policy("")
        reader = Reader(
            node.title, suite.rollout, suite.tools, suite.reward, taught.taught, taught.cold_start
        )
        yield from Edge(writer, reader, samples).joins()
        yield audit_join(node.title, suite.reward, samples)
        for policy in known:
            yield from protocol_joins(policy, suite, node.title, samples)

    def _named(self, node: Node, model: str | None) -> Policy | Join:
        """The policy that a suite's header evaluates, or the reason why there is none."""
        if model is None:
            fix = "write the command into a comment: `#   vtune eval --suite NAME --model RUN`"
            return Join(
                NOBODY,
                node.title,
                "policy",
                "",
                "",
                "note",
                "no command says which policy it evaluates",
                fix,
            )
        join, product = policy_of(node.title, model, self._shop)
        return self._of(product) if product is not None and product.node is not None else join

    def _suites(self, node: Node, values: Any, policy: Policy) -> Iterator[Join]:
        """The suites that a recipe or sweep names: each one exists, and offers what the policy can use."""
        for name in dict.fromkeys(suites_named(values)):
            try:
                suite = self._suite(name)
                _, samples = self._questions(suite)
                if isinstance(samples, VtuneError):
                    raise samples
            except VtuneError as error:
                yield broken(NOBODY, node.title, "suite", name, error)
                continue
            yield Join(suite.title, node.title, "suite", suite.title, name)
            yield from protocol_joins(policy, suite.recipe, suite.title, samples)

    def _suite(self, name: str) -> Node:
        known = self._nodes.get(f"eval/{Path(name).stem}")
        if known is not None:
            return known
        path = find(name, "eval_suites")
        return Node("eval", path.stem, path, load_recipe(path, EvalSuite), ())

    def base(self, node: Node) -> Node | None:
        """The recipe that a sweep's header names as its base."""
        for command in node.commands:
            name = command.value("--recipe")
            if name is not None and command.words[:1] in (("rl",), ("sft",)):
                return self._nodes.get(f"{command.words[0]}/{Path(name).stem}")
        return None

    def _of(self, product: Product | None) -> Policy:
        """The policy that a run writes, with what it was taught."""
        if product is None or product.node is None:
            return Policy("")
        return self._policy(product.node)

    def _policy(self, node: Node) -> Policy:
        if node.kind == "sft":
            traces = tuple(t for t in self._all(node.recipe.data, "traces") if isinstance(t, Trajectory))
            tools = frozenset(call.tool for trace in traces for call in trace.calls)
            return Policy(node.title, tools, traces, node.title)
        recipe: RLRecipe = node.recipe
        began = self._before(node) if recipe.model else Policy("")
        tools = frozenset(tool for sample in self._samples(recipe.data) for tool in sample.tools)
        rollout = recipe.rollout
        return Policy(node.title, tools, began.taught, began.cold_start, rollout.prompt, rollout.max_turns)

    def _before(self, node: Node) -> Policy:
        """The policy that training starts from.

        Raises:
            RecipeError: If it is a result of this same training.
        """
        if node.title in self._following:
            ring = " → ".join([*self._following[self._following.index(node.title) :], node.title])
            raise RecipeError(
                f"runs begin with one another: {ring}", where=str(node.path), fix="name another `model`"
            )
        self._following.append(node.title)
        try:
            return self._of(policy_of(node.title, node.recipe.model, self._shop)[1])
        finally:
            self._following.pop()

    def _questions(self, node: Node) -> tuple[str, list[Sample] | VtuneError]:
        """Who writes the data of a suite, and a few of its questions as the suite asks them."""
        suite: EvalSuite = node.recipe
        writer = f"the published {suite.format}"
        try:
            if suite.format == SAMPLES:
                names = [str(file) for name in suite.data for file in self._shop.files(name)]
                writer = counted(p.by for name in suite.data for p in self._shop.writers(name))
            else:
                names = [str(self._shop.published(suite.format))]
            read = read_questions(suite.model_copy(update={"data": tuple(dict.fromkeys(names))}), limit=MOST)
            return writer, [_with_pictures(sample, images) for sample, images in read]
        except VtuneError as error:
            return writer, error

    def _read(
        self, files: Sequence[str], kind: str
    ) -> Iterator[tuple[str, str, list[Sample | Trajectory] | VtuneError]]:
        """(file, who writes it, rows or the reason why there are none) for every file that has a writer."""
        for file in files:
            for product in self._shop.writers(file):
                if product.kind == kind and product.make is not None:
                    try:
                        yield file, product.by, self._rows(self._shop.rows(product))
                    except VtuneError as error:
                        yield file, product.by, error
            if not self._shop.writers(file) and Path(file).is_file():
                yield file, "a file that is here", self._rows(Path(file))

    def _all(self, files: Sequence[str], kind: str) -> list[Sample | Trajectory]:
        found = (rows for _, _, rows in self._read(files, kind) if not isinstance(rows, VtuneError))
        return [row for rows in found for row in rows]

    def _samples(self, files: Sequence[str]) -> list[Sample]:
        return [row for row in self._all(files, "samples") if isinstance(row, Sample)]


def _rows(file: Path) -> list[Sample | Trajectory]:
    """The first rows of a file, with pictures loaded."""
    read: Any = read_trajectories if "messages" in columns(file) else read_samples
    return [with_pictures(row, file.parent) for row in islice(read(file), MOST)]


def _with_pictures(sample: Sample, images: Sequence[bytes]) -> Sample:
    return replace(sample, images=tuple(Picture(data=data) for data in images))


def _indexes(tools: ToolsRecipe | None) -> list[str]:
    """Folders of the indexes that a recipe searches."""
    sections = () if tools is None else (tools.text_search, tools.image_search)
    return [part.index for part in sections if part is not None and part.index is not None]


def _read_by(recipe: RLRecipe) -> dict[str, Any]:
    """The settings that determine the joins of training."""
    values = recipe.model_dump(mode="json", include={"model", "data", "rollout", "tools", "reward"})
    return values | {"credit": None if recipe.credit is None else sorted(recipe.credit.tools)}
