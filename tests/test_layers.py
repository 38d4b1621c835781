"""Imports point one way: a folder may use only the folders below it. And nothing grows too long."""

import ast
import functools
import textwrap

import pytest

from tests.conftest import ROOT

LAYERS = [
    {"errors"},
    {"files", "manners", "parts", "sections", "signals", "waits"},
    {"kinds", "registry"},
    {"uses"},
    {"config", "differences", "schema"},
    {"sandbox", "looks"},
    {"verifiers", "judge", "models"},
    {"tools"},
    {"environments"},
    {"data"},
    {"curate", "rollout", "reward", "advantage", "update", "metrics"},
    {"protocols"},
    {"report"},
    {"view"},
    {"runs"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ROOMS = [
    {"kept_uses", "moved", "start", "versions"},
    {"folder", "interpreter"},
    {"agent", "data", "processes"},
    {"evaluate"},
    {"curate", "serve", "train"},
    {"audit", "parts", "sweep"},
    {"recipes", "report"},
    {"view"},
    {"demo", "plan"},
]
"""The packages of `vtune/runs/` by level; those of the first two levels, and `demo`, are single modules."""
FLOOR = {name: floor for floor, names in enumerate(ROOMS) for name in names}

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
LONGEST_FUNCTION, LONGEST_FILE = 60, 400
"""In lines, docstrings included."""
PATHS = sorted(
    path for top in ("vtune", "cli") for path in (ROOT / top).rglob("*.py") if path.parent.name != "snippets"
)
FILES = [path.relative_to(ROOT).as_posix() for path in PATHS]


def module(file: str) -> str:
    """The name under which a file is imported: `cli/rl.py` is `vtune.cli.rl`."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"vtune.{name}" if name.split(".")[0] == "cli" else name


def layer(name: str) -> str | None:
    """`vtune.reward.score` is in `reward`; None for the package itself and for foreign modules."""
    parts = name.split(".")
    return parts[1] if parts[0] == "vtune" and len(parts) > 1 else None


def room(name: str) -> str | None:
    """`vtune.runs.train.loop` is in `train`; None for modules outside `vtune.runs`."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["vtune", "runs"] and len(parts) > 2 else None


@functools.cache
def nodes(file: str) -> list[ast.AST]:
    """All imports, `if` statements and functions of a file, nested ones included."""
    found = statements(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    for node in found:
        if isinstance(node, FUNCTION):
            # Keeping it would keep the whole tree alive, and allocating that takes longer than parsing.
            node.body = []
    return found


def statements(tree: ast.AST) -> list[ast.AST]:
    """The statements of a tree that `nodes` returns."""
    kinds = ast.Import | ast.ImportFrom | ast.If | FUNCTION
    found: list[ast.AST] = []
    left = [tree]
    while left:
        node = left.pop()
        found += [node] if isinstance(node, kinds) else []
        # Only statements are searched, not expressions, which make up most of a file.
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            left += getattr(node, part, ())
    return found


def test_nested_statements_are_found() -> None:
    blocks = """
        class A:
            def a(self):
                async def b(): import c1
                if x: import c2
                elif y: import c3
                else: import c4
                for x in y: import c5
                else: import c6
                while x: import c7
                else: import c8
                with x: import c9
                match x:
                    case 1: import c10
        async def d():
            async with x: import c11
            async for x in y: import c12
        try: import c13
        except A: import c14
        else: import c15
        finally: import c16
        try: pass
        except* A: import c17
    """
    found = statements(ast.parse(textwrap.dedent(blocks)))
    names = {alias.name for node in found if isinstance(node, ast.Import) for alias in node.names}
    assert names == {f"c{number}" for number in range(1, 18)}
    assert {node.name for node in found if isinstance(node, FUNCTION)} == {"a", "b", "d"}


@functools.cache
def imports(file: str) -> list[tuple[int, str]]:
    """(line, full name) of everything that a file imports, also inside functions."""
    package = module(file) if file.endswith("__init__.py") else module(file).rpartition(".")[0]
    found = []
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{origin}.{alias.name}") for alias in node.names]
    return found


def importers(name: str) -> set[str]:
    return {file for file in FILES for _, what in imports(file) if f"{what}.".startswith(f"{name}.")}


def test_every_folder_has_a_layer() -> None:
    assert len(FILES) > 30
    assert {layer(module(file)) for file in FILES} - {None} <= set(LEVEL)


def test_relative_imports_are_found() -> None:
    assert "vtune.cli.options.AsJson" in {name for _, name in imports("cli/report.py")}


@pytest.mark.parametrize("file", FILES)
def test_imports_point_down(file: str) -> None:
    here = layer(module(file))
    for line, name in imports(file):
        there = layer(name)
        if here is not None and there is not None and there != here:
            assert LEVEL[there] < LEVEL[here], f"{file}:{line} may not import {name}"


def test_every_package_of_runs_has_a_level() -> None:
    assert {room(module(file)) for file in FILES} - {None} == set(FLOOR)


@pytest.mark.parametrize("file", [file for file in FILES if room(module(file)) is not None])
def test_packages_of_runs_import_only_lower_levels(file: str) -> None:
    here = room(module(file))
    assert here is not None
    for line, name in imports(file):
        there = room(name)
        if there is not None and there != here:
            assert FLOOR[there] < FLOOR[here], f"{file}:{line} may not import {name}"


def for_types(file: str) -> set[int]:
    """Lines of the imports that only a type checker executes."""
    return {
        line
        for node in nodes(file)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in range(node.lineno, node.body[-1].lineno + 1)
    }


def uses() -> dict[str, set[str]]:
    """Module -> modules that it imports at run time, also inside functions."""
    modules = {module(file): file for file in FILES}
    found = {}
    for name, file in modules.items():
        skipped = for_types(file)
        wanted = {what for line, what in imports(file) if line not in skipped}
        wanted = {what if what in modules else what.rpartition(".")[0] for what in wanted}
        found[name] = (wanted & modules.keys()) - {name}
    return found


def circles(graph: dict[str, set[str]]) -> set[str]:
    """What remains after repeatedly removing modules that import nothing or that nothing imports."""
    left = {name: set(others) for name, others in graph.items()}
    while True:
        used = set().union(*left.values())
        kept = {name for name, others in left.items() if others and name in used}
        if kept == left.keys():
            return kept
        left = {name: others & kept for name, others in left.items() if name in kept}


def test_an_import_cycle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b", "c"}


def test_there_are_no_import_cycles() -> None:
    graph = uses()
    assert sum(map(len, graph.values())) > len(graph) > 100
    assert circles(graph) == set()


def test_no_function_is_too_long() -> None:
    tests = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("*.py"))]
    assert len(tests) > 100
    long = {
        f"{file}:{node.name}"
        for file in [*FILES, *tests]
        for node in nodes(file)
        if isinstance(node, FUNCTION)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= LONGEST_FUNCTION
    }
    assert not long, "split it"


def test_no_file_is_too_long() -> None:
    lines = {file: len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in FILES}
    long = {file for file, count in lines.items() if count > LONGEST_FILE}
    assert not long, "split it"


@pytest.mark.parametrize(
    ("name", "owners"),
    [
        ("pyarrow.parquet", {"vtune/schema/parquet/tables.py"}),
        ("deepspeed", {"vtune/update/deepspeed.py", "vtune/update/starting.py"}),
        ("openai", {"vtune/judge/completions.py"}),
        (
            "vllm",
            {f"vtune/rollout/vllm{part}.py" for part in ("", "_nccl", "_outputs", "_senders", "_sleep")},
        ),
        (
            "httpx2",
            {
                "vtune/judge/tls.py",
                "vtune/rollout/fleet.py",
                "vtune/rollout/server_calls.py",
                "vtune/rollout/servers.py",
                "vtune/tools/http.py",
            },
        ),
        ("aiohttp", {"vtune/reward/connections.py", "vtune/tools/fetch.py"}),
        ("imagehash", {"vtune/curate/likeness.py", "vtune/tools/pictures.py"}),
        ("datasketch", {"vtune/curate/likeness.py"}),
        ("bm25s", {"vtune/tools/bm25.py", "vtune/tools/bm25_build.py", "vtune/tools/words.py"}),
        ("usearch", {"vtune/tools/dense.py", "vtune/tools/dense_build.py"}),
    ],
)
def test_only_its_owners_import_a_package(name: str, owners: set[str]) -> None:
    assert importers(name) == owners
