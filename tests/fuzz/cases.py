"""Command lines with bad input: every verb with every kind of bad input."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BAD = (2,)
LISTED = (0,)
"""Exit codes if the bad row is skipped and listed."""


@dataclass(frozen=True)
class Case:
    """A command line and its expected outcome."""

    name: str
    words: tuple[str, ...]
    codes: tuple[int, ...] = BAD
    says: tuple[str, ...] = ()
    """What its output must contain."""


REST = "data_source: null, sample: null, published: null"
"""Further keys of a source in a data recipe."""


def _sample_readers(file: str) -> dict[str, tuple[str, ...]]:
    """Verbs that read Parquet files of samples."""
    return {
        "inspect": ("data", "inspect", file),
        "validate": ("data", "validate", file),
        "export": ("data", "export", "verl", file, "--out", "out.parquet"),
        "import": ("data", "import", "vtriune", file, "--out", "out.parquet"),
        "index": ("data", "index", file, "--out", "index"),
        "faithfulness": ("faithfulness", file, "--data", file),
        "curate": (
            *("curate", "codev-rl-tiny", "--out", "curated", "--set", "filters=[]"),
            *("--set", "mix={caps: {}, repeat: {}}"),
            *("--set", f"sources={{a: {{files: [{file}], {REST}}}}}"),
        ),
        "rl": (
            "rl",
            "--recipe",
            "codev-tiny",
            "--set",
            f"data=['{file}']",
            "--set",
            "model=MODEL",
            "--dry-run",
        ),
        "sft": ("sft", "--recipe", "codev-tiny", "--set", f"data=['{file}']", "--set", "model=MODEL"),
        "eval": ("eval", "--suite", "lens", "--model", "MODEL", "--data", file, "--out", "evaluated"),
    }


def _line_readers(file: str) -> dict[str, tuple[str, ...]]:
    """Verbs that read JSON lines, JSON or TSV."""
    return {
        "index": ("data", "index", file, "--out", "index"),
        "import mars": ("data", "import", "mars", file, "--out", "out.parquet"),
        "import easyr1": ("data", "import", "easyr1", file, "--out", "out.parquet"),
        "import hrbench": ("data", "import", "hrbench", file, "--out", "out.parquet"),
        "import vstar": ("data", "import", "vstar", file, "--out", "out.parquet"),
    }


def _recipe_readers(file: str) -> dict[str, tuple[str, ...]]:
    """Verbs that read YAML."""
    return {
        "sft": ("sft", "--recipe", file, "--dry-run"),
        "rl": ("rl", "--recipe", file),
        "sweep": ("rl", "--recipe", "codev-tiny", "--sweep", file, "--dry-run"),
        "eval": ("eval", "--suite", file, "--model", "none"),
        "curate": ("curate", file, "--out", "curated"),
        "serve": ("serve", "rewards", "--recipe", file, "--port", "0"),
        "doctor": ("doctor", file),
    }


def _others(file: str, world: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Verbs that read something else."""
    pictures = str(world["pictures"])
    return {
        "make coco": (
            "data",
            "make",
            "coco",
            "--instances",
            file,
            "--images",
            pictures,
            "--out",
            "o.parquet",
        ),
        "import coco": ("data", "import", "coco", file, "--images", pictures, "--out", "o.parquet"),
        "columns": ("data", "import", "hf", str(world["passages"]), "--columns", file, "--out", "o.parquet"),
        "run": ("sandbox", "run", file),
        "run image": ("sandbox", "run", str(world["code"]), "--image", file),
        "token": ("serve", "rewards", "--token-file", file, "--port", "0"),
        "search": ("serve", "search", file, "--port", "0"),
        "search an index": ("data", "search", file, "query"),
        "attack": ("sandbox", "attack", "--dir", file),
        "report": ("report", file),
        "credit": ("report", "--credit", file),
        "page": ("report", file, "--html", "page.html"),
        "watch": ("watch", file, "--once"),
        "compare": ("compare", file, file),
        "export": ("export", file, "exported"),
        "hostfile": ("rl", "--recipe", "codev-tiny", "--gpus", "2", "--hostfile", file),
        "index pictures": ("data", "index", "--pictures", file, "--out", "index"),
        "faithfulness": ("faithfulness", file),
    }


def _writers(out: str, world: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Verbs that write a file."""
    samples, pictures = str(world["samples"]), str(world["pictures"])
    good = str(world["coco"]["good"])
    return {
        "export": ("data", "export", "verl", samples, "--out", out),
        "import": ("data", "import", "vtriune", samples, "--out", out),
        "html": ("data", "inspect", samples, "--html", out),
        "problems": ("data", "validate", samples, "--problems", out),
        "make coco": ("data", "make", "coco", "--instances", good, "--images", pictures, "--out", out),
        "copy": ("recipes", "copy", "rl/codev-tiny", out),
    }


def _folder_writers(out: str, world: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Verbs that write a folder."""
    samples = str(world["samples"])
    return {
        "lens": ("data", "make", "lens", "--out", out, "--train", "1", "--eval", "1", "--traces", "1"),
        "shapes": ("data", "make", "shapes", "--out", out, "--train", "1", "--eval", "1", "--traces", "1"),
        "trails": ("data", "make", "trails", "--out", out, "--train", "1", "--eval", "1", "--traces", "1"),
        "demo": ("demo", "--out", out),
        "rl": ("rl", "--recipe", "codev-tiny", "--out", out),
        "sft": ("sft", "--recipe", "codev-tiny", "--out", out, "--dry-run"),
        "eval": ("eval", "--suite", "lens", "--model", "MODEL", "--data", samples, "--out", out),
        "curate": ("curate", "codev-rl-tiny", "--out", out),
        "index": ("data", "index", str(world["passages"]), "--out", out),
        "run": ("sandbox", "run", str(world["code"]), "--out", out),
    }


SETTINGS = (
    "steps=.inf",
    "update.learning_rate=.nan",
    "update.learning_rate=1e999",
    "steps=" + "9" * 400,
    "seed=" + "9" * 6_000,
    "steps=1:1:1:1",
    "steps=" + "[" * 5_000,
    "data=&a [*a]",
    'data=["a\\0b"]',
    "a.b.c.d=1",
    "=1",
    "steps=!!python/name:os.system",
    "steps=2001-99-99",
    "update.learning_rate=-.inf",
)
"""Settings of a training recipe."""

ROWS_LISTED = {"inspect", "import"}
"""Verbs that list a bad row and continue."""


def cases(world: dict[str, Any]) -> Iterator[Case]:
    """All cases."""
    yield from _of_special_files(world)
    yield from _of_parquet(world)
    yield from _of_texts(world)
    yield from _of_outputs(world)
    yield from _of_options(world)


def _of_special_files(world: dict[str, Any]) -> Iterator[Case]:
    for kind in ("missing", "pipe", "zero", "loop", "huge", "noise", "folder", "utf16", "socket", "empty"):
        path = str(world["special"][kind])
        readers = {
            **{f"samples {name}": words for name, words in _sample_readers(path).items()},
            **{f"recipe {name}": words for name, words in _recipe_readers(path).items()},
            **_others(path, world),
        }
        for number, (name, words) in enumerate(readers.items()):
            # Pipes, which could hang, with all verbs; other kinds with every fourth, varying the verb.
            if kind == "pipe" or (number + len(kind)) % 4 == 0:
                yield Case(f"{kind} as {name}", words, **_outcome(kind, name))


def _outcome(kind: str, name: str) -> dict[str, Any]:
    if (kind, name) in {("empty", "run"), ("utf16", "run")}:
        return {"codes": (0, 1, 2)}
    if name == "recipe doctor":
        return {"codes": (1, 2)}
    return {}


def _of_parquet(world: dict[str, Any]) -> Iterator[Case]:
    whole = ("cut", "cut in data", "footer", "columns", "zeros", "repeated")
    unread = ("nan evidence", "inf evidence")  # the format lacks this column
    for number, (kind, path) in enumerate(world["parquet"].items()):
        for place, (name, words) in enumerate(_sample_readers(str(path)).items()):
            if name != "validate" and (number + place) % 3:
                continue
            says = (path.name,)
            if name == "curate" and kind not in whole:
                codes, says = (0, 1, 2), ()  # each bad row becomes a line in drops.jsonl
            elif name == "export" and kind in ("nan truth", "deep truth"):
                codes, says = (0,), ()  # passed on unchanged
            elif name in ROWS_LISTED and kind not in whole:
                codes = (0, 2)
                says = () if kind in unread and name == "import" else says
            else:
                codes = BAD
            yield Case(f"{kind} for {name}", words, codes, says)


def _of_texts(world: dict[str, Any]) -> Iterator[Case]:
    for number, (kind, path) in enumerate(world["yaml"].items()):
        for place, (name, words) in enumerate(_recipe_readers(str(path)).items()):
            if kind in ("bomb", "deep flow") or (number + place) % 3 == 0:
                yield Case(f"{kind} for {name}", words, (1, 2) if name == "doctor" else BAD, (path.name,))
    for number, (kind, path) in enumerate(world["lines"].items()):
        for place, (name, words) in enumerate(_line_readers(str(path)).items()):
            if (number + place) % 2 == 0 and (kind, name) != ("twice", "index"):
                yield Case(f"lines {kind} for {name}", words, says=(path.name,))
    for kind, path in world["coco"].items():
        if kind != "good":
            listed = kind not in ("deep", "list", "cut", "many")
            readers = _others(str(path), world)
            yield Case(
                f"coco {kind} for import", readers["import coco"], LISTED if listed else BAD, (path.name,)
            )
            yield Case(f"coco {kind} for make", readers["make coco"], (0, 2) if kind == "small" else BAD)
    for kind, path in world["runs"].items():
        for name in ("report", "credit", "compare", "page", "watch"):
            yield Case(f"run {kind} for {name}", _others(str(path), world)[name])


def _of_outputs(world: dict[str, Any]) -> Iterator[Case]:
    special, samples = world["special"], world["samples"]
    outs = {
        "device": special["full"],
        "pipe": special["pipe"],
        "socket": special["socket"],
        "folder": special["folder"],
        "below a file": samples / "below" / "out",
        "input": samples,
        "loop": special["loop"],
        "long": Path("x" * 300),
        "nowhere": Path("/proc/nowhere/out"),
    }
    for number, (kind, path) in enumerate(outs.items()):
        for place, (name, words) in enumerate(_writers(str(path), world).items()):
            if kind not in ("device", "input") and (number + place) % 3:
                continue
            harmless = kind == "input" and name in ("make coco",)
            harmless |= kind == "folder" and name == "copy"
            if not harmless:
                yield Case(f"{kind} as output of {name}", words)
        for place, (name, words) in enumerate(_folder_writers(str(path), world).items()):
            if kind == "below a file" or (kind != "folder" and (number + place) % 3 == 0):
                yield Case(f"{kind} as folder of {name}", words)


def _of_options(world: dict[str, Any]) -> Iterator[Case]:
    for number, setting in enumerate(SETTINGS):
        yield Case(f"setting {setting[:30]}", ("rl", "--recipe", "codev-tiny", "--set", setting))
        if number % 2:
            yield Case(
                f"sft {setting[:30]}", ("sft", "--recipe", "codev-tiny", "--set", setting, "--dry-run")
            )
    pictures = str(world["more"])
    yield Case("damaged picture in an index", ("data", "index", "--pictures", pictures, "--out", "i"))
    bad = str(world["bad picture"])
    yield Case("damaged picture for code", ("sandbox", "run", str(world["code"]), "--image", bad))
    yield Case("escapes in a name", ("recipes", "show", "\x1b[31m[red]\u202e"))
    yield Case("escapes in a path", ("data", "inspect", "\x1b[31m[/]\u202e\n.parquet"))
    yield Case("escapes in a format", ("data", "import", "\x1b[31m[/]", "x", "--out", "o"))
    yield Case("an unknown verifier", ("data", "import", "verl", "x", "--verifier", "[/]", "--out", "o"))
    yield Case("a grid of no such size", ("data", "make", "shapes", "--out", "o", "--grid", "9" * 30))
    yield Case("towns without end", ("data", "make", "trails", "--out", "o", "--towns", "9" * 30))
    yield Case("an unknown attack", ("sandbox", "attack", "--only", "\x1b[31m"))
