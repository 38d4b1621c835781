import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.errors import DataError, RecipeError, RunFailed
from vtune.runs.curate.results import Results
from vtune.runs.start import locked


def key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def test_a_result_is_on_disk_as_soon_as_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Results(path) as first:
        first.put(key("a"), {"reply": "Zoë\nsays"})
        with Results(path) as second:
            assert second.get(key("a")) == {"reply": "Zoë\nsays"}
        assert first.get(key("b")) is None
        assert key("b") not in first


@given(st.integers(1, 60))
def test_only_a_line_truncated_by_a_kill_is_lost(cut: int) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "r.jsonl"
        with Results(path) as results:
            results.put(key("a"), 1)
            results.put(key("b"), 2)
        path.write_bytes(path.read_bytes()[:-cut])
        with Results(path) as results:
            assert (results.get(key("a")), results.get(key("b"))) == (1, None)
            results.put(key("c"), 3)
        with Results(path) as results:
            assert [results.get(key(name)) for name in "abc"] == [1, None, 3]


def test_the_last_result_under_a_key_counts(tmp_path: Path) -> None:
    for value in (1, 2):
        with Results(tmp_path / "r.jsonl") as results:
            results.put(key("a"), value)
    with Results(tmp_path / "r.jsonl") as results:
        assert results.get(key("a")) == 2
        assert len(results) == 1


def test_a_foreign_file_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"key": "zz", "result": 1}\n')
    with pytest.raises(DataError, match="not a kept result") as caught:
        Results(tmp_path / "r.jsonl")
    assert caught.value.where.endswith("r.jsonl:1")


def test_a_folder_is_locked_for_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(RecipeError, match="another process is working"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


def test_a_full_disk_is_a_message_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Results(tmp_path / "results.jsonl")
    kept._file.close()
    monkeypatch.setattr(kept, "_file", open("/dev/full", "ab"))  # noqa: SIM115 - `kept` closes it
    with pytest.raises(RunFailed, match=r"results\.jsonl cannot be written: No space left"), kept:
        kept.put("ab" * 32, 1)
