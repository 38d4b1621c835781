"""Specimens of benchmarks for search agents and of mm-eval, each with one invalid row."""

from pathlib import Path

import pyarrow as pa

from vtune.data.formats import specimens_search
from vtune.data.formats.specimens_search import encrypted


def browsecomp_vl(folder: Path) -> tuple[Path, str]:
    """The file, and its invalid row: a missing picture."""
    path = specimens_search.browsecomp_vl(folder).path
    first = path.read_text().splitlines()[0]
    path.write_text(f"{first.replace('level1_0', 'level1_9')}\n{path.read_text()}")
    return path, f"{path}, row 0"


def mmsearch_plus(folder: Path) -> tuple[Path, str]:
    """The file, and its invalid row: one that is not encrypted."""
    path = specimens_search.mmsearch_plus(folder).path
    with pa.OSFile(str(path)) as stream, pa.ipc.open_stream(stream) as reader:
        table = reader.read_all()
    rows = table.to_pylist()
    assert rows[0]["question"] == encrypted("Who designed it?")
    rows.insert(0, rows[0] | {"question": "Who designed it?"})
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=table.schema))
    return path, f"{path}, row 0"


def mm_eval(folder: Path) -> tuple[Path, str]:
    """The folder, and its invalid row: one without an answer."""
    path = specimens_search.mm_eval(folder).path
    file = path / "test.jsonl"
    file.write_text('{"pid": 7, "figure": "images/0.jpg", "ask": "How many?"}\n' + file.read_text())
    return path, f"{file}, row 0"
