from pathlib import Path

from vtune.runs.sweep.preparing import preparations

PREPARE = {
    "data": "data make lens --seed {seed} --out {prepared}/data --tiny {prepared}/tiny",
    "start": "sft --recipe codev-tiny --set model={prepared}/tiny --set data=[{prepared}/data/a.parquet] "
    "--set seed={seed} --out {prepared}/start",
}


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_leftovers_of_an_interrupted_command_do_not_block_the_next(tmp_path: Path) -> None:
    """`--tiny` refuses a folder with a model; a training goes on in its own."""
    folder = tmp_path / "prepared" / "seed-3"
    for name in ("data/train.parquet", "tiny/config.json", "start/recipe.yaml", "other/x"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    data, start = preparations(PREPARE, {}, 3, tmp_path, ["{prepared}/start"])
    assert (data.words[0], start.words[-1]) == ("data", "--resume")
    assert left(folder) == ["other", "start"]


def test_finished_and_foreign_folders_are_kept(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = tmp_path / "prepared" / "seed-3"
    (folder / "tiny").mkdir(parents=True)
    (folder / "data.json").touch()
    (start,) = preparations(PREPARE, {}, 3, tmp_path, ["{prepared}/start"])
    assert (start.words[0], left(folder)) == ("sft", ["tiny"])
    own = {"own": f"data make lens --seed {{seed}} --tiny {elsewhere} --out {{prepared}}"}
    (one,) = preparations(own, {}, 3, tmp_path, ["{prepared}/traces.parquet"])
    assert one.words[0] == "data"
    assert (elsewhere.is_dir(), left(folder)) == (True, ["tiny"])


def test_output_of_another_command_in_the_same_folder_is_kept(tmp_path: Path) -> None:
    own = {
        "lens": "data make lens --seed {seed} --out {prepared}/both/lens",
        "shapes": "data make shapes --seed {seed} --out {prepared}/both",
    }
    folder = tmp_path / "prepared" / "seed-3"
    (folder / "both" / "lens").mkdir(parents=True)
    (folder / "lens.json").touch()
    (one,) = preparations(own, {}, 3, tmp_path, ["{prepared}/both/x.parquet"])
    assert one.words[2] == "shapes"
    assert left(folder / "both") == ["lens"]
