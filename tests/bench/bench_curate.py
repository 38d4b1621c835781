"""A million rows without pictures through the rule filters: rows per second, and peak memory.

pytest tests/bench/bench_curate.py -s -o python_files='bench_*.py'
"""

import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from tests.runs.commands import environment
from tests.runs.curate.test_curation import RULES, source, stress, write_recipe
from vtune.schema.parquet import write_samples

ROWS = 1_000_000
LIMIT = 10**9
"""In bytes."""

CODE = """
import resource, sys
from vtune.cli.main import app
app(sys.argv[1:], standalone_mode=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def test_a_million_rows(tmp_path: Path) -> None:
    data = tmp_path / "rows.parquet"
    write_samples(data, stress(ROWS))
    recipe = write_recipe(tmp_path / "r.yaml", {"s": source(data)}, RULES)
    words = [sys.executable, "-c", CODE, "curate", str(recipe), "--out", str(tmp_path / "out"), "--json"]
    start = perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True)
    seconds = perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = int(ended.stderr.splitlines()[-1]) * 1024
    print(f"\n{ROWS / seconds:.0f} rows/s ({ROWS / cpu:.0f} a second of CPU), peak {peak / 1e6:.0f} MB")
    assert peak < LIMIT
