"""The table of parts: only a part's own file spells its name, and parts are loaded on demand."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module

import pytest

from tests.conftest import ROOT
from vtune.curate.filters import FILTERS
from vtune.data.formats.table import FORMATS
from vtune.environments import ENVIRONMENTS
from vtune.errors import RecipeError
from vtune.metrics.benchmarks import SCORERS
from vtune.models.families import FAMILIES
from vtune.parts import OURS, Kind
from vtune.protocols import PROTOCOLS
from vtune.registry import TABLES
from vtune.reward.evidence_judge import EVIDENCE
from vtune.reward.part import REWARDS
from vtune.rollout.prompts import STYLES
from vtune.tools import TOOLS
from vtune.update.losses import LOSSES
from vtune.uses import use
from vtune.verifiers import VERIFIERS

TABLE = "vtune/parts.py"
UNMISTAKABLE: tuple[Kind, ...] = ("verifier", "tool", "family", "loss", "filter")
"""Kinds whose names are unmistakable; others, e.g. `mean` or `tools`, also occur as ordinary words."""
CARRIERS: dict[Kind, frozenset[str]] = {
    "verifier": frozenset({"verifier", "VERIFIERS", "verifier_of"}),
    "tool": frozenset({"tool", "tools", "TOOLS", "offers"}),
    "environment": frozenset({"environment", "ENVIRONMENTS"}),
    "format": frozenset({"format", "layout", "FORMATS", "plain_name", "format_of"}),
    "scorer": frozenset({"scorer", "SCORERS"}),
    "protocol": frozenset({"protocol", "PROTOCOLS"}),
    "prompt": frozenset({"prompt", "style", "STYLES"}),
    "filter": frozenset({"filter", "FILTERS"}),
    "evidence": frozenset({"judges", "EVIDENCE", "judged_by"}),
    "reward": frozenset({"REWARDS", "own"}),
    "family": frozenset({"family", "FAMILIES"}),
    "loss": frozenset({"algorithm", "LOSSES"}),
}
"""Kind -> keys, variables and functions whose value or argument is the name of a part."""
OTHER_MEANINGS = {
    ("cli/data.py", "exact"): "how an index searches",
    ("vtune/tools/dense_build.py", "exact"): "how an index searches",
    ("vtune/curate/item.py", "*"): "abilities of V-Triune's rows",
    ("vtune/data/coco.py", "counting"): "an ability",
    ("vtune/judge/client.py", "judge"): "a section of a recipe",
    ("vtune/reward/preflight.py", "judge"): "a section of a recipe",
    ("vtune/data/harness.py", "counting"): "an ability",
    ("vtune/data/charts.py", "counting"): "a kind of question",
    ("vtune/data/mathematics.py", "math"): "an ability",
    ("vtune/data/formats/specimens.py", "*"): "rows as others write them",
    ("vtune/data/formats/specimens_traces.py", "*"): "rows as others write them",
    ("vtune/data/formats/vtriune.py", "ocr"): "a word of an ability",
    ("vtune/data/shapes.py", "*"): "tasks of puzzles",
    ("vtune/data/formats/megabench.py", "mega_bench"): "the format, and the source of its rows",
    ("vtune/metrics/megabench.py", "mega_bench"): "the scorer",
    ("vtune/protocols/readings.py", "mega_bench"): "a kind of question, and the scorer",
    ("vtune/curate/judging.py", "judge"): "a key of a recipe",
    ("vtune/reward/service.py", "judge"): "a key of what is sent",
    ("vtune/reward/wire.py", "judge"): "a key of what is sent",
    ("vtune/reward/released.py", "judge"): "the id of a sample",
    ("vtune/runs/plan/plan.py", "judge"): "what a plan misses",
    ("vtune/runs/evaluate/against.py", "judge"): "a cause of a difference",
    ("vtune/runs/evaluate/causes.py", "judge"): "a cause of a difference",
    ("vtune/runs/evaluate/published.py", "judge"): "a cause of a difference",
    ("vtune/runs/evaluate/rescored.py", "judge"): "a cause of a difference",
    ("vtune/runs/audit/ways.py", "judge"): "a key of a recipe",
    ("vtune/report/machine.py", "python"): "the interpreter",
    ("vtune/runs/plan/doctor.py", "python"): "the interpreter",
    ("vtune/runs/folder.py", "python"): "the interpreter",
    ("vtune/runs/plan/checks.py", "judge"): "a key of a recipe, and a check",
    ("vtune/data/formats/specimens_maths.py", "english"): "a language of MathVista's rows",
    ("vtune/report/faithfulness.py", "labels"): "a key of a result",
    ("vtune/runs/audit/human_labels.py", "labels"): "a key of a result",
}
"""(file, word) where the word is not a name of a part; `*`: every word there."""


NAMES = {name for parts in OURS.values() for name in parts}
QUOTED = re.compile(f"""[\"'](?:{"|".join(map(re.escape, sorted(NAMES)))})[\"']""")
TABLES_OF_CODE = sorted(word for words in CARRIERS.values() for word in words if word.isupper())
ADDS = re.compile(rf"^ *(?:{'|'.join(TABLES_OF_CODE)})\.add\(", re.MULTILINE)


@functools.cache
def code() -> dict[str, str]:
    """The files of the code, except the table."""
    files = {
        path.relative_to(ROOT).as_posix(): path
        for top in ("vtune", "cli")
        for path in (ROOT / top).rglob("*.py")
    }
    assert len(files) > 500
    return {file: path.read_text(encoding="utf-8") for file, path in files.items() if file != TABLE}


@functools.cache
def trees() -> dict[str, list[ast.AST]]:
    """The nodes of each file of the code; files without a part's name in quotes are skipped."""
    return {file: list(walk(ast.parse(text))) for file, text in code().items() if QUOTED.search(text)}


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """A faster `ast.walk` in another order: most nodes are of a few kinds without children."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                left.append(value)
            elif isinstance(value, list):
                left += [one for one in value if isinstance(one, ast.AST)]


@functools.cache
def strings() -> list[tuple[str, str, int]]:
    """(file, string, line) of every string in the code that may be a part's name."""
    return [
        (file, node.value, node.lineno)
        for file, nodes in trees().items()
        if "sandbox" not in file.split("/")
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES
    ]


def spelt(kind: Kind) -> set[tuple[str, str, int]]:
    """(file, name, line) of every string that is the name of a part of another file."""
    return {
        (file, name, line)
        for file, name, line in strings()
        if name in OURS[kind] and OURS[kind][name].replace(".", "/") + ".py" != file
    }


@pytest.mark.parametrize("kind", UNMISTAKABLE)
def test_no_file_spells_the_name_of_a_part_of_another_file(kind: Kind) -> None:
    assert OURS[kind]
    places = {
        (file, name, line)
        for file, name, line in spelt(kind)
        if (file, name) not in OTHER_MEANINGS and (file, "*") not in OTHER_MEANINGS
    }
    assert not places, (
        "import the part's module, and write its `NAME`; where it means something else: OTHER_MEANINGS"
    )


def test_every_listed_other_meaning_still_occurs() -> None:
    met = {(file, name) for kind in UNMISTAKABLE for file, name, _ in spelt(kind)}
    assert {one for one in OTHER_MEANINGS if one[1] != "*"} <= met
    assert {file for file, name in OTHER_MEANINGS if name == "*"} <= {file for file, _ in met}


def last_word(node: ast.expr) -> str:
    """The key, variable or function that an expression ends with."""
    match node:
        case (
            ast.Attribute(attr=word) | ast.Name(id=word) | ast.Subscript(slice=ast.Constant(value=str(word)))
        ):
            return word
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return last_word(inner)
    return ""


def texts(node: ast.AST | None) -> list[str]:
    """The string that an expression is, or all strings of a list or a conditional expression."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.BoolOp(values=parts):
            return [text for part in parts for text in texts(part)]
        case ast.MatchOr(patterns=patterns):
            return [text for part in patterns for text in texts(part)]
        case ast.IfExp(body=one, orelse=other):
            return texts(one) + texts(other)
        case ast.MatchValue(value=one) | ast.Starred(value=one):
            return texts(one)
    return []


def carried(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(carrier, string) of comparisons, look-ups, cases, keywords, defaults, keys and assignments."""
    pairs: list[tuple[str, ast.AST | None]] = []
    match node:
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
            pairs = [(last_word(a), b) for a in sides for b in sides if a is not b]
        case ast.Subscript(value=table, slice=key):
            pairs = [(last_word(table), key)]
        case ast.Call(func=called, args=args, keywords=keywords):
            of = called.value if isinstance(called, ast.Attribute) else called
            pairs = [(last_word(of), args[0])] if args else []
            pairs += [(text, other) for text in texts(args[0]) for other in args[1:]] if args else []
            pairs += [(word.arg or "", word.value) for word in keywords]
        case ast.arguments():
            given = [*node.posonlyargs, *node.args]
            pairs = [(one.arg, value) for one, value in zip(given[::-1], node.defaults[::-1], strict=False)]
            pairs += [(one.arg, value) for one, value in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        case ast.Match(subject=subject, cases=cases):
            pairs = [(last_word(subject), case.pattern) for case in cases]
        case ast.Dict(keys=keys, values=values):
            pairs = [(text, b) for a, b in zip(keys, values, strict=True) for text in texts(a)]
        case ast.AnnAssign(target=target, value=value):
            pairs = [(last_word(target), value)]
        case ast.Assign(targets=targets, value=value):
            pairs = [(last_word(target), value) for target in targets]
    return ((word, text) for word, value in pairs for text in texts(value))


def named(nodes: Iterable[ast.AST], file: str) -> set[tuple[Kind, str, str]]:
    """(kind, name, file) of every place in a file that refers to a part of another file."""
    found = {pair for node in nodes for pair in carried(node)}
    return {
        (kind, name, file)
        for word, name in found
        for kind, words in CARRIERS.items()
        if word in words and name in OURS[kind] and OURS[kind][name].replace(".", "/") + ".py" != file
    }


def test_no_file_refers_to_a_part_of_another_file_by_name() -> None:
    assert set(CARRIERS) == set(OURS)
    assert len(trees()) > 100
    # Allowed: a protocol names its scorers as a suite does, and specimens are rows with tools and verifiers.
    found = {one for file, nodes in trees().items() for one in named(nodes, file)}
    scorers = {one for one in found if one[0] == "scorer" and one[2].startswith("vtune/protocols/")}
    assert scorers
    rows = "vtune/data/formats/specimens.py"
    known = {("tool", "python", rows), ("verifier", "detection", rows)}
    assert found - scorers == known, "import the part's module, and write its `NAME`"


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ('recipe.rollout.prompt == "plain"', "prompt", "plain"),
        ('STYLES["pool"]', "prompt", "pool"),
        ('source.format in ("vstar", "samples")', "format", "samples"),
        ('Source(format="samples")', "format", "samples"),
        ('format: Format = "samples"', "format", "samples"),
        ('row["environment"] != "tools"', "environment", "tools"),
        ('{"scorer": "mean"}', "scorer", "mean"),
        ('PROTOCOLS.get("official")', "protocol", "official"),
        ('levels.judges = ["boxes"]', "evidence", "boxes"),
        ('reward.own["consistency"]', "reward", "consistency"),
        ('FILTERS["balance"]', "filter", "balance"),
        ('loss.algorithm == "gspo"', "loss", "gspo"),
        ('family_of(x).family == "qwen3_vl"', "family", "qwen3_vl"),
        ('sample.verifier == "math"', "verifier", "math"),
        ('call.tool == "python"', "tool", "python"),
        ('style = prompt or "codev"', "prompt", "codev"),
        ('ask(prompt="plain" if bare else "pool")', "prompt", "pool"),
        ('def ask(sample, prompt="plain"): ...', "prompt", "plain"),
        ('def ask(sample, *, prompt="plain"): ...', "prompt", "plain"),
        ('row.get("environment", "tools")', "environment", "tools"),
        ('match layout:\n    case "coco" | "verl": ...', "format", "verl"),
    ],
)
def test_a_name_that_refers_to_a_part_is_found(text: str, kind: Kind, name: str) -> None:
    assert (kind, name, "vtune/other.py") in named(ast.walk(ast.parse(text)), "vtune/other.py")


OTHER_TABLES = {
    "vtune/runs/evaluate/exports/lmms_eval.py": "tasks of lmms-eval",
    "vtune/runs/evaluate/exports/vlmevalkit.py": "kinds of questions",
}
"""Files with a table whose keys look like names of formats but mean something else."""


def elsewhere(kind: Kind, file: str, names: Iterable[str]) -> set[str]:
    """Those of the names that belong to parts of other files."""
    return {
        name for name in names if name in OURS[kind] and OURS[kind][name].replace(".", "/") + ".py" != file
    }


def decided(nodes: Iterable[ast.AST], file: str, kind: Kind) -> set[str]:
    """Parts of other files that a file returns by name, or lists in a table.

    Tables count in files next to the parts of that kind; tables of formats count everywhere except in
    protocols, whose keys are kinds of questions: many have the same name as the format that they came in.
    """
    houses = {module.rpartition(".")[0].replace(".", "/") for module in OURS[kind].values()}
    beside = kind in (*UNMISTAKABLE, "format") and file.rpartition("/")[0] in houses
    anywhere = kind == "format" and not file.startswith("vtune/protocols/") and file not in OTHER_TABLES
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Return(value=value) | ast.Lambda(body=value):
                found.update(texts(value))
            case ast.Dict(keys=keys, values=values) if beside:
                found.update(text for one in (*keys, *values) for text in texts(one))
            case ast.Dict(keys=keys, values=values) if anywhere:
                for side in (keys, values):
                    several = elsewhere(kind, file, (text for one in side for text in texts(one)))
                    found.update(several if len(several) > 1 else ())
    return elsewhere(kind, file, found)


def test_no_file_selects_among_parts_of_other_files_by_name() -> None:
    """What distinguishes a part must be a trait of the part, so that a user's new part can have it, too."""
    found = {(file, kind): decided(nodes, file, kind) for file, nodes in trees().items() for kind in OURS}
    assert {place: names for place, names in found.items() if len(names) > 1} == {}


def test_every_listed_other_table_still_exists() -> None:
    for file in OTHER_TABLES:
        assert len(decided(trees()[file], "vtune/other.py", "format")) > 1, file


@pytest.mark.parametrize(
    "text",
    [
        'def look(row):\n    if row:\n        return "coco"\n    return "verl"',
        'def look(row):\n    return "coco" if row else "verl"',
        'telling = {"annotations": "coco", "data_source": "verl"}',
        '_OF = {"coco": {"annotations"}, "verl": {"data_source"}}',
        'look = lambda row: ("coco", "verl") if row else ()',
    ],
)
def test_selecting_parts_by_name_is_found(text: str) -> None:
    nodes = list(ast.walk(ast.parse(text)))
    assert decided(nodes, "vtune/data/formats/other.py", "format") == {"coco", "verl"}
    assert decided(nodes, "vtune/runs/data/other.py", "format") == {"coco", "verl"}


def added(node: ast.AST) -> Kind | None:
    """The kind of part that a call adds to a table."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="add")):
            return next(
                (kind for kind, words in CARRIERS.items() if table.isupper() and table in words), None
            )
    return None


def kin(nodes: Iterable[ast.AST], file: str) -> set[tuple[Kind, str]]:
    """(kind, name) of parts of other files that a file names in a call that adds a part of the same kind.

    The call is to `add`, or to a function of the same file that calls it.
    """
    nodes = list(nodes)
    helpers = {
        node.name: kind
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        for inner in walk(node)
        if (kind := added(inner)) is not None
    }
    found: set[tuple[Kind, str]] = set()
    for node in nodes:
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if (kind := added(node) or helpers.get(called)) is not None:
            strings = (inner.value for inner in walk(node) if isinstance(inner, ast.Constant))
            texts = [text for text in strings if isinstance(text, str)]
            found.update((kind, name) for name in elsewhere(kind, file, texts))
    return found


def test_no_part_names_another_part_of_its_kind() -> None:
    found = {file: kin(nodes, file) for file, nodes in trees().items()}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ('FORMATS.add("mine", Format(read, also=lambda options: ("coco",)))', "format", "coco"),
        ('FORMATS.add("mine", Format(read, also=("coco",)))', "format", "coco"),
        ('def _add(also):\n    FORMATS.add("mine", also)\n\n_add(also=["coco"])', "format", "coco"),
        ('VERIFIERS.add("mine", Verifier(verify, or_else="math"))', "verifier", "math"),
    ],
)
def test_a_part_that_names_another_part_of_its_kind_is_found(text: str, kind: Kind, name: str) -> None:
    nodes = list(ast.walk(ast.parse(text)))
    assert kin(nodes, "vtune/other.py") == {(kind, name)}
    assert kin(nodes, OURS[kind][name].replace(".", "/") + ".py") == set()


def test_every_line_of_the_table_is_a_part() -> None:
    tables = (
        VERIFIERS,
        FILTERS,
        TOOLS,
        ENVIRONMENTS,
        FORMATS,
        SCORERS,
        PROTOCOLS,
        STYLES,
        EVIDENCE,
        REWARDS,
        FAMILIES,
        LOSSES,
    )
    assert {table.kind for table in tables} == set(OURS)
    for table in tables:
        assert [name for name, part in table.items() if part] == list(OURS[table.kind])
        assert all(table.about(part) for part in table.values())


def test_every_built_in_part_has_a_line_in_the_table() -> None:
    """Without that line the part's tests still pass, as they import its file, but no recipe finds it."""
    adding = [file for file, text in code().items() if ADDS.search(text)]
    assert len(adding) > 50
    for file in adding:
        import_module(file.removesuffix(".py").replace("/", "."))
    unlisted = {
        (module, name)
        for table in TABLES.values()
        for module in table.modules()
        if module.startswith("vtune.")
        for name in table.of(module)
    }
    assert not unlisted, "add a line for it to `OURS` (vtune/parts.py)"


def test_only_the_requested_part_is_loaded() -> None:
    code = (
        "import sys; from vtune.verifiers import VERIFIERS; 'ocr' in VERIFIERS; list(VERIFIERS);"
        "before = 'vtune.verifiers.exact' in sys.modules; VERIFIERS['exact'];"
        "print(before, 'vtune.verifiers.exact' in sys.modules, 'vtune.verifiers.ocr' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "True", "False"]


def test_a_built_in_name_cannot_be_taken() -> None:
    with pytest.raises(RecipeError, match="`exact` is the name of vtune's own verifier") as told:
        VERIFIERS.add("exact", VERIFIERS["exact"])
    assert "test_parts.py" in told.value.where
    assert told.value.fix == "give yours another name"


def test_using_a_built_in_file_as_a_user_part_names_the_test_to_run() -> None:
    with pytest.raises(RecipeError, match="`exact` is the name of vtune's own verifier") as told:
        use([ROOT / "vtune/verifiers/exact.py"])
    assert "`pytest tests/runs/parts/test_ours.py -k exact` tries it" in told.value.fix


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        ("verifier", "vtune/verifiers/README.md"),
        ("format", "cli/data.md"),
        ("protocol", "vtune/protocols/README.md"),
        ("loss", "vtune/update/README.md"),
        ("filter", "data_recipes/README.md"),
    ],
)
def test_a_page_that_lists_parts_lists_all_built_in_ones(kind: Kind, page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [name for name in OURS[kind] if f"`{name}`" not in text] == [], f"add them to {page}"


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="there is no verifier `exakt`; did you mean `exact`"):
        VERIFIERS.known("exakt")
