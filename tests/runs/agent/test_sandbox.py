from dataclasses import replace
from pathlib import Path

import pytest

from tests.rollout.build import SAMPLE
from vtune.errors import DataError
from vtune.runs.agent.sandbox import may_run_code
from vtune.schema.parquet import write_samples

PLAIN = replace(SAMPLE, tools=("search",), environment="")


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([PLAIN], False),
        ([replace(PLAIN, tools=())], False),
        ([PLAIN, replace(PLAIN, tools=("search", "python"))], True),
        ([PLAIN, replace(PLAIN, environment="maze")], True),
    ],
)
def test_rows_that_may_run_code_are_found(rows: list, found: bool, tmp_path: Path) -> None:  # type: ignore[type-arg]
    files = []
    for number, row in enumerate(rows):
        files.append(str(tmp_path / f"{number}.parquet"))
        write_samples(Path(files[-1]), [row])
    assert may_run_code(files) is found


def test_unreadable_data_do_not_count_as_free_of_code(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        may_run_code([str(tmp_path / "missing.parquet")])
