"""The README's map names what is there, and nothing else."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def files_of_the_map() -> set[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.split("## The map", 1)[1].split("```")[1]
    found, folder = set(), ""
    for line in block.strip().splitlines()[1:]:
        name = line.split()[0]
        if name.endswith("/"):
            folder = name
        elif line.startswith("  "):
            found.add(folder + name)
    return found


def test_the_map_has_one_line_for_every_file() -> None:
    there = {
        path.relative_to(ROOT).as_posix()
        for top in ("cli", "vtune")
        for path in (ROOT / top).rglob("*.py")
        # The attacks that ship are read as text; none of them is a module.
        if path.name != "__init__.py" and path.parent.name != "snippets"
    }
    assert len(there) > 50
    assert files_of_the_map() == there


def test_every_verb_has_its_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = " ".join(re.findall(r"^### (.*)$", text, re.MULTILINE))
    for verb in (
        "demo",
        "data",
        "curate",
        "sft",
        "rl",
        "eval",
        "export",
        "faithfulness",
        "report",
        "sandbox",
        "serve",
        "doctor",
        "recipes",
    ):
        assert f"`vtune {verb}" in pages
