"""Bad input is reported before anything starts: exit code 2, file, row and fix."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.runs.commands import evaluation, rl, setting, sft, vtune
from vtune.schema.parquet import read_samples, write_samples
from vtune.schema.sample_row import SAMPLE_COLUMNS, sample_to_row


def with_a_bad_row(good: Path, out: Path, spoil: Callable[[dict[str, Any]], object]) -> Path:
    """The file with a corrupted second row, as a foreign writer could produce."""
    rows = [sample_to_row(sample) for sample in read_samples(good)]
    spoil(rows[1])
    pq.write_table(pa.Table.from_pylist(rows, schema=SAMPLE_COLUMNS), out)
    return out


def broken(good: Path, out: Path) -> Path:
    out.write_bytes(good.read_bytes()[:-100])
    return out


def unreadable_picture(row: dict[str, Any]) -> None:
    row["images"][0]["bytes"] = b"no picture"


# How the data is modified, the row that is named, and the message.
DATA: dict[str, tuple[Callable[[Path, Path], Path], str, str]] = {
    "missing file": (lambda good, out: out, "", "cannot read"),
    "broken Parquet": (broken, "", "the Parquet file is cut short"),
    "a file of something else": (
        lambda good, out: good.with_name("traces.parquet"),
        "",
        "the file has no column `prompt`",
    ),
    "unknown verifier": (
        lambda good, out: with_a_bad_row(good, out, lambda row: row["reward_model"].update(verifier="exatc")),
        "row 1",
        "unknown verifier 'exatc'",
    ),
    "ground truth that its verifier rejects": (
        lambda good, out: with_a_bad_row(good, out, lambda row: row["reward_model"].update(ground_truth=" ")),
        "row 1",
        "ground truth",
    ),
    "more images than placeholders": (
        lambda good, out: with_a_bad_row(good, out, lambda row: row["images"].append(row["images"][0])),
        "row 1",
        "1 <image> mark(s) for 2 image(s)",
    ),
    "more placeholders than images": (
        lambda good, out: with_a_bad_row(good, out, lambda row: row["images"].clear()),
        "row 1",
        "1 <image> mark(s) for 0 image(s)",
    ),
    "unreadable picture": (
        lambda good, out: with_a_bad_row(good, out, unreadable_picture),
        "row 1",
        "a picture cannot be opened",
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_bad_data_stop_rl_and_eval_before_they_start(
    name: str, tiny: Path, lens: Path, tmp_path: Path
) -> None:
    make, row, what = DATA[name]
    data = make(lens / "heldout.parquet", tmp_path / "bad.parquet")
    for words in (rl(tiny, data, tmp_path / "out"), evaluation(tiny, data, tmp_path / "out")):
        ended = vtune(*words)
        assert (ended.code, ended.out) == (2, "")
        for part in (str(data), row, what, "fix"):
            assert part in ended.err
        assert "Traceback" not in ended.err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("make", [DATA["missing file"], DATA["broken Parquet"]], ids=["missing", "broken"])
def test_bad_traces_stop_sft_before_it_starts(make: Any, tiny: Path, lens: Path, tmp_path: Path) -> None:
    data = make[0](lens / "traces.parquet", tmp_path / "bad.parquet")
    ended = vtune(*sft(tiny, data, tmp_path / "out"))
    assert ended.code == 2
    for part in (str(data), make[2], "fix"):
        assert part in ended.err
    assert not (tmp_path / "out").exists()


def test_an_unknown_key_gets_a_suggestion(tiny: Path, lens: Path, tmp_path: Path) -> None:
    data = lens / "heldout.parquet"
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(vtune("recipes", "show", "rl/codev-tiny").out.replace("group_size: 8", "group_sise: 8"))
    ended = vtune("rl", "--recipe", recipe, *setting(model=tiny, data=f"[{data}]"), "--out", tmp_path / "out")
    line = next(n for n, text in enumerate(recipe.read_text().splitlines(), 1) if "group_sise" in text)
    assert ended.code == 2
    assert f"mine.yaml:{line}: unknown key `group_sise`; did you mean `group_size`?" in ended.err
    assert "`group_size`: field required" in ended.err
    for words in (rl, sft, evaluation):
        ended = vtune(*words(tiny, data, tmp_path / "out", *setting(seeds=1)))
        assert ended.code == 2
        assert "--set: unknown key `seeds`; did you mean `seed`?" in ended.err
    assert not (tmp_path / "out").exists()


# An impossible setting, and its message.
SETTINGS = {
    "update.betas=[0.9,1.5]": "`update.betas.1`: input should be less than 1",
    "update.freeze=[vision,connector,language]": "`update`: freeze leaves nothing to train",
    "update.zero_stage=true": "`update`: zero_stage is true, which is not a value for it",
    "images.min_pixels=99999999": ", with --set: `images`: min_pixels 99999999 exceeds max_pixels",
    "update.lora={rank: 2, alpha: 2, targets: [nothere]}": "no trainable linear layer is called nothere",
}


@pytest.mark.parametrize("given", SETTINGS)
def test_an_invalid_setting_is_reported_before_a_folder_is_made(
    given: str, tiny: Path, lens: Path, tmp_path: Path
) -> None:
    for words in (
        rl(tiny, lens / "train.parquet", tmp_path / "out"),
        sft(tiny, lens / "traces.parquet", tmp_path / "out"),
    ):
        for dry in ([], ["--dry-run"]):
            ended = vtune(*words, "--set", given, *dry)
            assert (ended.code, ended.out) == (2, "")
            assert SETTINGS[given] in ended.err
            assert not (tmp_path / "out").exists()


def test_a_question_without_a_judge_is_refused(tiny: Path, lens: Path, tmp_path: Path) -> None:
    data = tmp_path / "unjudged.parquet"
    write_samples(data, (replace(sample, evidence=()) for sample in read_samples(lens / "heldout.parquet")))
    for words in (rl(tiny, data, tmp_path / "out"), evaluation(tiny, data, tmp_path / "out")):
        ended = vtune(*words)
        assert ended.code == 2
        assert "no evidence boxes, and the recipe has no judge" in ended.err
        assert "search_abilities" in ended.err
        assert not (tmp_path / "out").exists()


def test_an_unset_token_is_reported_before_a_folder_is_made(tiny: Path, lens: Path, tmp_path: Path) -> None:
    service = "{urls: ['http://127.0.0.1:9'], token_env: VTUNE_NO_SUCH_TOKEN}"
    out = tmp_path / "out"
    ended = vtune(*rl(tiny, lens / "train.parquet", out), *setting(reward__service=service))
    assert ended.code == 2
    assert "no environment variable VTUNE_NO_SUCH_TOKEN" in ended.err
    assert not out.exists()
