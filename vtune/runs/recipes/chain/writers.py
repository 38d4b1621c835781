"""What commands and recipes write, and a few rows of it from the code that writes the real thing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from vtune.config import load_recipe
from vtune.data import shortcut, trail_world, trails
from vtune.data.formats.building import Options
from vtune.data.formats.specimens import Specimen, coco
from vtune.data.formats.table import format_of
from vtune.data.offer import named_tools
from vtune.errors import DataError, RecipeError, VtuneError, nearest
from vtune.rollout.prompts import OF_TRACES
from vtune.runs.curate.rows import Rows
from vtune.runs.data.coco import make_coco
from vtune.runs.data.importing import import_data
from vtune.runs.data.lens import make_lens, make_shortcut
from vtune.runs.data.own_traces import make_box_traces
from vtune.runs.data.shapes import make_shapes
from vtune.runs.recipes.chain.headers import Command, command_of, fits
from vtune.runs.recipes.chain.nodes import KINDS, Node
from vtune.runs.sweep.placeholders import points
from vtune.runs.sweep.preparing import commands_in
from vtune.runs.sweep.recipe import Sweep
from vtune.schema.parquet import with_pictures, write_samples, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

FEW = 6
"""Rows of a synthetic file; of shape puzzles, two for each of three tasks."""
TOWNS = 8
"""Towns in a world of trails: enough for roads."""


@dataclass(frozen=True, slots=True)
class Product:
    """Something that a command or a recipe writes."""

    path: str
    """As the command names it, see `headers.fits`."""
    kind: str
    """`samples`, `traces`, `policy`, `passages` or `index`."""
    by: str
    """Who writes it, in a few words."""
    make: Callable[["Workshop", Path], Path] | None = None
    """Writes a few rows into a folder and returns the file; None for a product without rows."""
    node: Node | None = None
    """The recipe that writes it."""


class Workshop:
    """All products of a walk, and the files of rows made from them.

    Args:
        folder: Folder for these files.
        products: What all commands and recipes write.
    """

    def __init__(self, folder: Path, products: Sequence[Product]) -> None:
        self._folder = folder
        self._products = products
        self._made: dict[int, Path | VtuneError] = {}
        self._making: list[Product] = []
        self._writers: dict[str, list[Product]] = {}
        self._published: dict[str, Path] = {}
        self._puzzles: dict[str, Path] = {}

    def writers(self, path: str) -> list[Product]:
        """The products that a path may refer to."""
        if path not in self._writers:
            self._writers[path] = [product for product in self._products if fits(product.path, path)]
        return self._writers[path]

    def rows(self, product: Product) -> Path:
        """A file with a few rows of a product, made on first use.

        Raises:
            VtuneError: If its own inputs do not join.
        """
        key = self._products.index(product)
        if product in self._making:
            raise RecipeError(f"{product.path} is made from itself", fix="write elsewhere with --out")
        if key not in self._made:
            self._making.append(product)
            folder = self._folder / str(key)
            folder.mkdir()
            try:
                assert product.make is not None
                self._made[key] = product.make(self, folder)
            except VtuneError as error:
                self._made[key] = error
            finally:
                self._making.pop()
        found = self._made[key]
        if isinstance(found, VtuneError):
            raise found
        return found

    def writers_of(self, title: str) -> list[Product]:
        """The products of a recipe."""
        return [product for product in self._products if product.by == title]

    def published(self, layout: str) -> Path:
        """A few rows of a layout as published.

        Raises:
            DataError: If its rows have no fixed form.
        """
        if layout not in self._published:
            folder = self._folder / layout
            folder.mkdir()
            self._published[layout] = _specimen(layout, folder, layout).path
        return self._published[layout]

    def puzzles(self, make: Callable[[Path], object]) -> Path:
        """A folder of puzzles, made once: every command that makes them gets the same few rows."""
        name = make.__name__
        if name not in self._puzzles:
            self._puzzles[name] = self._folder / f"puzzles{name}"
            self._puzzles[name].mkdir()
            make(self._puzzles[name])
        return self._puzzles[name]

    def files(self, path: str) -> list[Path]:
        """Files of rows for a file that a recipe names: one per writer, or the file itself.

        Raises:
            VtuneError: If nothing writes it, or its writer cannot be joined.
        """
        writers = [product for product in self.writers(path) if product.make is not None]
        if not writers and Path(path).is_file():
            return [Path(path)]
        if not writers:
            raise unwritten(path)
        return [self.rows(product) for product in writers]


def unwritten(path: str) -> DataError:
    """The error for a file that is read but that nothing makes."""
    return DataError(
        f"nothing makes {path}",
        fix="write the command that makes it into a comment of the recipe (`#   vtune …`), name what a "
        "command makes, or put the file there",
    )


def products_of(nodes: Sequence[Node]) -> list[Product]:
    """The products of all commands in headers, and of the recipes themselves."""
    found: dict[tuple[str, str], Product] = {}
    for node in nodes:
        own = _prepared(node, nodes) if node.kind == "sweep" else ()
        for product in [
            *_of_node(node),
            *(p for c in node.commands for p in _in_header(c, node, nodes)),
            *own,
        ]:
            if product.path:
                found.setdefault((product.path, product.by), product)
    return list(found.values())


def _of_node(node: Node) -> Iterator[Product]:
    outs = [out for command in node.runs() if (out := command.value("--out")) is not None]
    if node.kind == "data":
        records = node.recipe.records
        for out in outs or [f"data/curated/{node.name}"]:
            yield Product(f"{out}/{records}.parquet", records, node.title, _curated(node), node)
    if node.kind in ("sft", "rl"):
        for out in outs or [f"runs/{node.name}"]:
            yield Product(out, "policy", node.title, node=node)


def _prepared(node: Node, nodes: Sequence[Node]) -> Iterator[Product]:
    """The products that a sweep prepares for itself, for its first seed.

    Raises:
        RecipeError: If a command passes a key or value that its recipe does not accept.
    """
    try:
        sweep = load_recipe(node.path, Sweep)
    except RecipeError:
        return  # reported when its variants are read
    made_by = {one.title: one for one in nodes}
    for at in points(sweep.axes):
        for words in commands_in(node.prepared, sweep.prepare, at, sweep.seeds[0]).values():
            command = command_of(words)
            maker = made_by.get(_run_by(command))
            if maker is None:
                yield from _of_command(command, nodes)
                continue
            yield from _of_run(command, maker, node.title)


def _in_header(command: Command, node: Node, nodes: Sequence[Node]) -> Iterator[Product]:
    """The products of a command in a recipe's comments; if it runs another recipe, with its `--set`.

    Raises:
        RecipeError: If a command passes a key or value that its recipe does not accept.
    """
    trains = command.begins("sft") or command.begins("rl")
    if not trains or "--sweep" in command.options:
        yield from _of_command(command, nodes)
        return
    maker = next((one for one in nodes if one.title == _run_by(command)), None)
    if maker is not None and maker.title != node.title and "--out" in command.options:
        yield from _of_run(command, maker, node.title)


def _of_run(command: Command, maker: Node, by: str) -> Iterator[Product]:
    """The products of a command that runs a recipe, with its `--set`.

    Raises:
        RecipeError: If it passes a key or value that the recipe does not accept.
    """
    given = command.options.get("--set", ())
    recipe = load_recipe(maker.path, KINDS[maker.kind], given, given_by=f"{by}, --set")
    yield from _of_node(replace(maker, recipe=recipe, commands=(command,)))


def _run_by(command: Command) -> str:
    """The title that the command's recipe would have, if it runs one."""
    if command.begins("curate"):
        return f"data/{command.words[-1]}"
    return f"{command.words[0]}/{command.value('--recipe')}"


def _of_command(command: Command, nodes: Sequence[Node]) -> Iterator[Product]:
    out = command.value("--out") or ""
    by = " ".join(command.words[:3])
    if command.words in (("data", "import"), ("data", "make")):
        raise RecipeError(
            f"`vtune {command.text}` does not say what", fix="finish the command, or write it as prose"
        )
    if command.begins("data", "import"):
        makes = format_of(command.words[2]).makes
        yield Product(out, makes, by, lambda shop, folder: _imported(command, folder))
    elif command.begins("data", "make", "coco"):
        yield Product(out, "samples", by, lambda shop, folder: _coco(folder)[0])
        traces = command.value("--traces")
        if traces is not None:
            yield Product(traces, "traces", by, lambda shop, folder: _coco(folder)[1])
    elif command.begins("data", "make", "traces"):
        yield Product(out, "traces", by, lambda shop, folder: _box_traces(command, shop, folder))
    elif command.begins("data", "make", "passages"):
        yield Product(out, "passages", by)
    elif command.begins("data", "make"):
        yield from _puzzles(command, out, by)
    elif command.begins("data", "index"):
        yield Product(out, "index", by)
    elif command.begins("demo"):
        yield from _demo(out or "runs/demo", nodes)


def _imported(command: Command, folder: Path) -> Path:
    found = _specimen(command.words[2], folder, command.text)
    tools = command.options.get("--tools")
    options = Options(
        images=found.images,
        verifier=command.value("--verifier"),
        tools=named_tools(tools) if tools else None,
    )
    out = folder / "rows.parquet"
    import_data(command.words[2], [found.path], out, options=options, strict=True, show=False)
    return out


def _specimen(layout: str, folder: Path, where: str) -> Specimen:
    write = format_of(layout).specimen
    if write is None or "columns" in format_of(layout).takes:  # its rows are defined by a column map
        raise DataError(
            f"rows of the format {layout} have no shape of their own",
            where=where,
            fix="make the file, and write the command as prose: then the first rows of the file are read",
        )
    return write(folder)


def _coco(folder: Path) -> tuple[Path, Path]:
    found = coco(folder)
    assert found.images is not None
    samples, traces = folder / "samples.parquet", folder / "traces.parquet"
    make_coco(found.path, found.images, samples, limit=None, seed=0, traces=traces)
    return samples, traces


def _box_traces(command: Command, shop: Workshop, folder: Path) -> Path:
    data = command.value("--data")
    if data is None:
        raise DataError("traces of a run need the run", where=command.text, fix="name samples with --data")
    out = folder / "traces.parquet"
    make_box_traces(shop.files(data), out, prompt=command.value("--prompt") or OF_TRACES)
    return out


_HALVES = {"train": "samples", "heldout": "samples", "traces": "traces"}
"""File in a folder of puzzles -> its kind."""


def _puzzles(command: Command, out: str, by: str) -> Iterator[Product]:
    makers = {"lens": _lens, "shapes": _shapes, "trails": _trails}
    make = makers.get(command.words[2])
    if make is None:
        raise RecipeError(f"there is no `vtune {by}`", fix=nearest(command.words[2], makers))
    halves = _HALVES
    if "--shortcut" in command.options:
        make = _shortcut
        halves = {"train": "samples", "traces": "traces", **dict.fromkeys(shortcut.RELATIONS, "samples")}
    for half, kind in halves.items():
        yield Product(f"{out}/{half}.parquet", kind, by, _half(make, half))
    if command.words[2] == "trails":
        yield Product(f"{out}/articles-index", "index", by)
        yield Product(f"{out}/banners-index", "index", by)
    tiny = command.value("--tiny")
    if tiny is not None:
        yield Product(tiny, "policy", by)


def _half(make: Callable[[Path], object], half: str) -> Callable[[Workshop, Path], Path]:
    def write(shop: Workshop, folder: Path) -> Path:
        return shop.puzzles(make) / f"{half}.parquet"

    return write


def _lens(folder: Path) -> None:
    make_lens(folder, train=FEW, heldout=FEW, traces=FEW, level=1, guessable=0.0, seed=0)


def _shortcut(folder: Path) -> None:
    world = shortcut.Shortcut(0.5)
    make_shortcut(folder, train=FEW, heldout=FEW, traces=FEW, world=world, seed=0)


def _shapes(folder: Path) -> None:
    make_shapes(folder, train=FEW, heldout=FEW, traces=FEW, grid=4, seed=0, tiny=None)


def _trails(folder: Path) -> None:
    world = trail_world.make_world(TOWNS, TOWNS, seed=0)
    write_samples(folder / "train.parquet", trails.samples(world, FEW, seed=0, split="train"))
    write_samples(folder / "heldout.parquet", trails.samples(world, FEW, seed=0, split="heldout"))
    write_trajectories(folder / "traces.parquet", trails.traces(world, FEW, seed=0))


def _demo(out: str, nodes: Sequence[Node]) -> Iterator[Product]:
    """The products of `vtune demo`, made by the two recipes `codev-tiny`."""
    for half, kind in _HALVES.items():
        yield Product(f"{out}/data/{half}.parquet", kind, "demo", _half(_lens, half))
    yield Product(f"{out}/tiny", "policy", "demo")
    for kind in ("sft", "rl"):
        # Among recipes that were replaced, these two may be missing.
        node = next((node for node in nodes if node.title == f"{kind}/codev-tiny"), None)
        yield Product(f"{out}/{kind}", "policy", "demo", node=node)


def _curated(node: Node) -> Callable[[Workshop, Path], Path]:
    def write(shop: Workshop, folder: Path) -> Path:
        out = folder / "rows.parquet"
        records = [record for name in node.recipe.used for record in _joined(node, name, shop)]
        if not records:
            raise DataError(f"no source of {node.title} can be read", fix=f"vtune recipes check {node.title}")
        if node.recipe.records == "samples":
            # Several sources may have received the same few rows.
            samples = [replace(r, id=f"{n}/{r.id}") for n, r in enumerate(records) if isinstance(r, Sample)]
            write_samples(out, samples)
        else:
            write_trajectories(out, (record for record in records if isinstance(record, Trajectory)))
        return out

    return write


def _joined(node: Node, name: str, shop: Workshop) -> list[Sample | Trajectory]:
    """Rows of a source; empty if it cannot be joined, which is reported where it is read."""
    try:
        return source_rows(node, name, shop)
    except VtuneError:
        return []


def source_rows(node: Node, name: str, shop: Workshop) -> list[Sample | Trajectory]:
    """A few rows of a source of a data recipe, transformed as the recipe says, with pictures loaded.

    Raises:
        VtuneError: If nothing writes its files, or the recipe cannot read what is written.
    """
    source = node.recipe.used[name]
    files = tuple(str(made) for file in source.files for made in shop.files(file))
    rows = Rows(node.recipe.records, {name: source.model_copy(update={"files": files, "sample": None})})
    few = islice(rows.items(name), FEW * len(files) * 2)
    return [with_pictures(item.record, item.base) for _, item in few]
