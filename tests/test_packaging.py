import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDERS = ["vtune", "cli", "recipes", "data_recipes", "eval_suites"]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files of a wheel, built from a copy of the tree because setuptools leaves a build folder behind."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed; it is in the dev extra")
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    for file in tracked():
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).write_bytes((ROOT / file).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", str(folder), str(tree)], check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def tracked() -> list[Path]:
    files = [ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE")]
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return [path.relative_to(ROOT) for path in files]


def test_the_wheel_installs_a_single_top_level_package(members: list[str]) -> None:
    tops = {member.split("/")[0] for member in members}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"vtune"}


def test_every_module_and_every_recipe_is_in_the_wheel(members: list[str]) -> None:
    wanted = [file.as_posix() for file in tracked() if file.suffix in (".py", ".yaml")]
    installed = {name if name.startswith("vtune/") else f"vtune/{name}" for name in wanted}
    assert {
        "vtune/cli/main.py",
        "vtune/recipes/rl/codev-tiny.yaml",
        "vtune/eval_suites/__init__.py",
    } <= installed
    assert installed - set(members) == set()
    assert "vtune/py.typed" in members
