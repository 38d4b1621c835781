"""The pages in Markdown, as tests read them: their links, headings, code spans and command lines."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

TOPS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
"""The folders of the repository."""
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(page for top in TOPS for page in (ROOT / top).rglob("*.md"))]
)

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^    .*\n?)+", re.MULTILINE)
_SPAN = re.compile(r"`([^`]+)`")


def text_of(page: str) -> str:
    """The source of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[str]:
    """The code blocks of a page, fenced ones first, without their indent."""
    text = text_of(page)
    fenced = [found.group().partition("\n")[2].rpartition("\n")[0] for found in _FENCED.finditer(text)]
    indented = _INDENTED.findall(_FENCED.sub("", text))
    return fenced + ["\n".join(line[4:] for line in block.splitlines()) for block in indented]


def prose(page: str) -> str:
    """A page without its code blocks."""
    return _INDENTED.sub("", _FENCED.sub("", text_of(page)))


def spans(page: str) -> list[str]:
    """The text of each code span in a page's prose, joined into one line."""
    return [" ".join(span.split()) for span in _SPAN.findall(prose(page))]


def command_lines(page: str) -> Iterator[list[str]]:
    """The arguments of each `vtune …` in the code blocks of a page; a backslash continues a line."""
    for block in blocks(page):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(r"(\$ )?vtune ", line):
                yield shlex.split(line.removeprefix("$ "), comments=True)[1:]


def links(page: str) -> list[str]:
    """The targets of the links of a page that lead to other files, or to headings."""
    targets = re.findall(r"\]\(([^)\s]+)\)", _SPAN.sub("", prose(page)))
    return [target for target in targets if "://" not in target]


def anchors(page: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        number = 0
        while (anchor if number == 0 else f"{anchor}-{number}") in found:
            number += 1
        found.add(anchor if number == 0 else f"{anchor}-{number}")
    return found


def goal(page: str, target: str) -> tuple[Path, str]:
    """The file that a link leads to, and the anchor in it or ""."""
    file, _, anchor = target.partition("#")
    return ((ROOT / page).parent / file).resolve() if file else ROOT / page, anchor
