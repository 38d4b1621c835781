"""The words of the project are those of its field and of plain English, in sources, pages and recipes."""

import functools
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

BANNED = {
    # Old names and their replacements.
    r"refills?": "dynamic sampling rounds",
    r"groups_silent|silent groups?": "zero variance",
    r"stand_in": "dummy item",
    r"hollow": "without weights, empty",
    r"lean modules?|use_lean_\w+|lean\.py": "fused modules",
    r"write_whole|whole_file|\w+\.whole\(": "write_atomically, atomic_file, gathered",
    r"whole_traces": "complete_traces",
    r"not a whole (?!number\b)\w+|(?:is|are) not whole|wrote it whole": "complete",
    # Phrases that no native engineer would write.
    r"(?<!there )(?:is|are|was|were) none": "is not a",
    r"(?<!here )(?:is|are) no (?:list|number of|multiple|name of|value for|option|point|source)": "is not a",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"(?:one|entry|row) a (?:token|call|conversation|trajectory|process|row|group|line|step|GPU)": "per",
    r"(?:one|a) line each": "one per line",
    r"tokens a (?:second|conversation)": "per",
    r"(?:at most|more than|of|from|in|about) so many": "this many",
    r"held against": "compared with, checked against",
}
"""Pattern, case-insensitive -> what to write instead."""

ALLOWED = {
    ("vtune/config.py", "refills"): "the old name of a key, in the table of renamed keys",
    (
        "vtune/sandbox/attacks/snippets/res_lying_extension.py",
        "is none",
    ): "the name under which it is reported",
    ("vtune/tools/calls.py", "is no number of"): "a message that models were trained to read",
}
"""(file, phrase) -> why it is allowed there."""

SUFFIXES = (".py", ".md", ".yaml")
FILES = sorted(
    path
    for folder in ("vtune", "cli", "recipes", "data_recipes", "eval_suites")
    for path in (ROOT / folder).resolve().rglob("*")
    if path.suffix in SUFFIXES and "__pycache__" not in path.parts
)


def said(text: str, pattern: str) -> list[str]:
    """The whole-word matches of a pattern in a text; line breaks and indents count as spaces."""
    return _said(_running(text), pattern)


def _running(text: str) -> str:
    return re.sub(r"\s+(?:# )?", " ", text)


def _said(running: str, pattern: str) -> list[str]:
    return [found[0] for found in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", running, re.IGNORECASE)]


@pytest.mark.parametrize(("pattern", "instead"), BANNED.items(), ids=list(BANNED))
def test_no_file_uses_a_banned_phrase(pattern: str, instead: str) -> None:
    assert len(FILES) > 300
    found = [
        f"{path.relative_to(ROOT)}: {word!r}, write: {instead}"
        for path in FILES
        for word in _said(_prose(path), pattern)
        if (path.relative_to(ROOT).as_posix(), word) not in ALLOWED
    ]
    assert found == []


@functools.cache
def _prose(path: Path) -> str:
    """A file's running text without Python's `is None`, which would be read as English."""
    return _running(re.sub(r"\b(?:is|are) None\b", "", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "text",
    [
        "'x' is none of a, b",
        "# one\n    # a token",
        "it was mended",
        "advantage.refills: 0",
        "write_whole(p)",
    ],
)
def test_a_banned_phrase_is_found(text: str) -> None:
    assert any(said(text, pattern) for pattern in BANNED)


@pytest.mark.parametrize("text", ["where there is none", "prefill", "recommend it", "two per row", "amend"])
def test_a_phrase_that_only_looks_banned_is_not_found(text: str) -> None:
    assert not any(said(text, pattern) for pattern in BANNED)
