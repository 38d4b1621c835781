"""What a data format promises."""

import tempfile
from pathlib import Path

from vtune.data.formats.building import Options
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError
from vtune.runs.parts.checks.check import Broken, Check, tried


def check_format(name: str) -> list[Check]:
    """The rows of its specimen can be read."""
    layout = FORMATS[name]

    def run() -> str:
        if layout.specimen is None:
            raise Broken("give Format a `specimen` that writes a few rows into a folder")
        with tempfile.TemporaryDirectory() as folder:
            found = layout.specimen(Path(folder))
            entries = [entry for _, entry in layout.read(found.path, Options(images=found.images))]
        for entry in entries:
            if isinstance(entry, DataError):
                raise Broken(str(entry))
        if not entries:
            raise Broken("no row was read")
        return f"{len(entries)} {layout.makes}"

    return [tried("the rows of its specimen are read", run)]
