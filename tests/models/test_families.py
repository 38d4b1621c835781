"""Only a model family's own files name its tokens, module paths and type."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from vtune.errors import DataError
from vtune.models.families import FAMILIES, family_of
from vtune.models.families.hermes import HERMES

HOME = ROOT / "vtune/models/families"
PATHS = re.compile(r"(?:^|\.)visual\.|merger|deepstack|patch_embed")
"""Module names of Qwen's vision towers; those of language models are common to transformers."""
CLASSES = re.compile(r"Qwen\d\w*(?:Config|Model|Processor|Generation|RMSNorm)")
QUOTES = {
    "vtune/parts.py": "the table of parts",
    "vtune/data/formats/specimens.py": "rows as others publish them, prompts included",
    "vtune/reward/items.py": "turns of others in a reply that a client has not taken apart",
    "vtune/protocols/points.py": "what the rule of others looks for in a reply",
    "vtune/verifiers/gradings.py": "what the rule of others looks for in a reply",
}
"""File -> why it may name them."""


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of every string except docstrings, and of every attribute (as `.name.`)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value
        elif isinstance(node, ast.Attribute):
            yield node.lineno, f".{node.attr}."


@functools.cache
def own_words() -> set[str]:
    """What only a family's files may spell: its type, tokens and tool template tags."""
    words = set(FAMILIES)
    for family in FAMILIES.values():
        words |= {*family.tokens.placeholders, family.tokens.turn, *family.tiny.special, *family.tools.tags}
        words |= {word.strip("<|>") for word in family.tiny.special}
    # Excluded: these tags are common in records, whatever the model.
    return words | {f"<{HERMES.response}", f"<{HERMES.call}"}


def named(path: Path) -> list[str]:
    """What a file mentions of a family, with the line."""
    words = own_words()
    return [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]!r}"
        for line, text in strings(path)
        if any(word in text for word in words) or PATHS.search(text) or CLASSES.search(text)
    ]


def test_nothing_else_names_a_token_or_a_path_of_a_family() -> None:
    files = [path for top in ("vtune", "cli") for path in (ROOT / top).rglob("*.py")]
    found = {
        path: places
        for path in files
        if HOME not in path.parents and "attacks" not in path.parts and (places := named(path))
    }
    quoting = {path.relative_to(ROOT).as_posix() for path in found}
    assert quoting - set(QUOTES) == set(), found
    assert quoting == set(QUOTES), "an exception that is not needed any more"


def test_the_search_finds_the_names_in_family_files() -> None:
    assert any("<|vision_start|>" in one for one in named(HOME / "qwen.py"))
    assert any("merger" in one for one in named(HOME / "qwen.py"))
    assert any("ForConditionalGeneration" in one for one in named(HOME / "qwen3_vl.py"))


def test_an_unknown_model_type_lists_the_families_and_says_what_to_add() -> None:
    with pytest.raises(DataError, match="models/x is a 'llava' model") as caught:
        family_of("llava", "models/x")
    assert all(name in caught.value.fix for name in FAMILIES)
    assert 'FAMILIES.add("llava", Family(…))' in caught.value.fix
    assert "vtune/models/README.md" in caught.value.fix


def test_no_two_published_models_share_a_name_or_size() -> None:
    names = [name for family in FAMILIES.values() for name in family.sizes]
    assert len(set(names)) == len(names)
    sizes = [name.rsplit("-", 1)[1] for name in names]
    assert len(set(sizes)) == len(sizes)
