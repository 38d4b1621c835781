"""Runs one check in its own process: `python -m tests.gpu.one ENTRY GIVEN FOLDER TINY`.

The result goes to `found.json` in the check's folder.
"""

import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from tests.gpu.checks import Found, Place
from vtune.models.import_stubs import uncollected


def main() -> None:
    """Run the check and write its result."""
    entry, given, folder, tiny = sys.argv[1:]
    module, _, function = entry.partition(":")
    with uncollected():
        check = getattr(import_module(f"tests.gpu.{module}"), function)
    found: Found = check(Place(Path(folder), tiny == "1"), **json.loads(given))
    text = json.dumps({"bars": [asdict(bar) for bar in found.bars], "figures": dict(found.figures)})
    (Path(folder) / "found.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
