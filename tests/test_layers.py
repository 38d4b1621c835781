"""Imports point one way: a folder may use only the folders below it."""

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

LAYERS = [
    {"errors"},
    {"files", "parts", "sections"},
    {"uses"},
    {"config", "schema"},
    {"sandbox", "looks"},
    {"verifiers", "judge", "models"},
    {"tools"},
    {"data"},
    {"curate", "rollout", "reward", "advantage", "update", "metrics"},
    {"report"},
    {"runs"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
PATHS = sorted(
    path for top in ("vtune", "cli") for path in (ROOT / top).rglob("*.py") if path.parent.name != "snippets"
)
FILES = [path.relative_to(ROOT).as_posix() for path in PATHS]


def module(file: str) -> str:
    """The name that a file is imported by: `cli/rl.py` is `vtune.cli.rl`."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"vtune.{name}" if name.split(".")[0] == "cli" else name


def layer(name: str) -> str | None:
    """`vtune.reward.score` is in `reward`; None for the package itself and for foreign modules."""
    parts = name.split(".")
    return parts[1] if parts[0] == "vtune" and len(parts) > 1 else None


def imports(file: str) -> Iterator[tuple[int, str]]:
    """(line, full name) of everything that a file imports, inside functions too."""
    package = module(file) if file.endswith("__init__.py") else module(file).rpartition(".")[0]
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def importers(name: str) -> set[str]:
    return {file for file in FILES for _, what in imports(file) if f"{what}.".startswith(f"{name}.")}


def test_every_folder_has_a_layer() -> None:
    assert len(FILES) > 30
    assert {layer(module(file)) for file in FILES} - {None} <= set(LEVEL)


def test_relative_imports_are_seen() -> None:
    assert "vtune.cli.options.AsJson" in {name for _, name in imports("cli/report.py")}


@pytest.mark.parametrize("file", FILES)
def test_imports_point_down(file: str) -> None:
    here = layer(module(file))
    for line, name in imports(file):
        there = layer(name)
        if here is not None and there is not None and there != here:
            assert LEVEL[there] < LEVEL[here], f"{file}:{line} may not import {name}"


@pytest.mark.parametrize(
    ("name", "owners"),
    [
        ("pyarrow.parquet", {"vtune/schema/parquet.py"}),
        ("deepspeed", {"vtune/update/deepspeed.py"}),
        ("openai", {"vtune/judge/client.py"}),
        ("vllm", {"vtune/rollout/vllm.py"}),
        ("httpx2", {"vtune/rollout/servers.py", "vtune/tools/http.py"}),
        ("httptools", {"vtune/reward/connections.py"}),
        ("bm25s", {"vtune/tools/bm25.py", "vtune/tools/bm25_build.py", "vtune/tools/words.py"}),
        ("usearch", {"vtune/tools/dense.py", "vtune/tools/dense_build.py"}),
    ],
)
def test_one_file_imports_it(name: str, owners: set[str]) -> None:
    assert importers(name) == owners
