"""One check, in the process that is its own: `python -m tests.gpu.one ENTRY GIVEN FOLDER TINY`.

What it finds goes to `found.json` in its folder.
"""

import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from tests.gpu.checks import Found, Place
from vtune.models.import_stubs import uncollected


def main() -> None:
    """Try it and write down what it found."""
    entry, given, folder, tiny = sys.argv[1:]
    module, _, function = entry.partition(":")
    with uncollected():
        check = getattr(import_module(f"tests.gpu.{module}"), function)
    found: Found = check(Place(Path(folder), tiny == "1"), **json.loads(given))
    text = json.dumps({"bars": [asdict(bar) for bar in found.bars], "figures": dict(found.figures)})
    (Path(folder) / "found.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
