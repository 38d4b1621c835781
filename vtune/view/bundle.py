"""The viewer's page as one file: its modules, style and values, usable without a network."""

import base64
import hashlib
import importlib.resources
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

PAGE, STYLE, ICON, FIRST = "index.html", "style.css", "icon.svg", "app.js"

_IMPORT = re.compile(
    r'^import (?:\{ (?P<names>[^}]+) \}|\* as (?P<all>\w+)) from "\./(?P<file>\w+\.js)";$', re.M
)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const) (?P<name>\w+))", re.M)


def static(name: str) -> str:
    """A file of the page, as text."""
    return importlib.resources.files("vtune.view").joinpath("static", name).read_text(encoding="utf-8")


def one_file(held: Mapping[str, Any]) -> str:
    """The page as HTML, with the values that `source.js` reads.

    Its content security policy allows this exact script and style, embedded pictures, and nothing else.

    Args:
        held: `note`, `sweeps`, `places`, `runs`, `lists`, `ones`, `films`, `pictures`, `shown`: `source.js`.
    """
    script, style = bundled(FIRST), static(STYLE)
    policy = (
        f"default-src 'none'; script-src '{_print(script)}'; style-src '{_print(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    # Without `<`, no text in a trajectory can end the element that contains it.
    values = json.dumps(held, allow_nan=False).replace("<", "\\u003c")
    head = f'<meta http-equiv="content-security-policy" content="{policy}">'
    icon = base64.b64encode(static(ICON).encode()).decode()
    parts = {
        '<meta charset="utf-8">': f'<meta charset="utf-8">\n{head}',
        'href="icon.svg"': f'href="data:image/svg+xml;base64,{icon}"',
        f'<link rel="stylesheet" href="{STYLE}">': f"<style>{style}</style>",
        f'<script type="module" src="{FIRST}"></script>\n': "",
        "</body>": f'<script id="held" type="application/json">{values}</script>\n'
        f'<script type="module">{script}</script>\n</body>',
    }
    page = static(PAGE)
    for before, after in parts.items():
        if page.count(before) != 1:
            raise RuntimeError(f"{PAGE} has no single {before}")
        page = page.replace(before, after)
    return page


def bundled(name: str) -> str:
    """A module and all its imports as one script, each wrapped in a function so that names do not clash."""
    return "".join(_wrapped(file) for file in dict.fromkeys(_in_order(name)))


def _in_order(name: str) -> Iterator[str]:
    """A module, preceded by the modules that it needs."""
    for found in _IMPORT.finditer(static(name)):
        yield from _in_order(found["file"])
    yield name


def _wrapped(name: str) -> str:
    source = static(name)
    exported = ", ".join(found["name"] for found in _EXPORT.finditer(source))

    def destructured(found: re.Match[str]) -> str:
        names = found["all"] or f"{{ {found['names'].replace(' as ', ': ')} }}"
        return f"const {names} = {_variable(found['file'])};"

    body = _EXPORT.sub("", _IMPORT.sub(destructured, source))
    return f"const {_variable(name)} = await (async () => {{\n{body}return {{ {exported} }};\n}})();\n"


def _variable(name: str) -> str:
    return f"module_{name.removesuffix('.js')}"


def _print(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
