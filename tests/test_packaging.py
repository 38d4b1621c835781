import importlib.util
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDERS = ["vtune", "cli", "recipes", "data_recipes", "eval_suites"]
FILES = ["pyproject.toml", "MANIFEST.in", "Makefile", "README.md", "CHANGELOG.md", "LICENSE"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built, because setuptools leaves a build folder behind."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed; it is in the dev extra")
    tree = tmp_path_factory.mktemp("built") / "tree"
    for file in tracked("tests"):
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).write_bytes((ROOT / file).read_bytes())
    return tree


@pytest.fixture(scope="module")
def members(tree: Path) -> list[str]:
    """Files of a wheel."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", "..", "."], cwd=tree, check=True, capture_output=True, text=True)
    (wheel,) = tree.parent.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def tracked(*more: str) -> list[Path]:
    files = [ROOT / name for name in FILES]
    for folder in (*FOLDERS, *more):
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
    assert not any(member.endswith((".md", ".png")) for member in members)


def test_a_source_distribution_has_every_file(tree: Path) -> None:
    build = "import setuptools.build_meta as backend; backend.build_sdist('..')"
    subprocess.run([sys.executable, "-c", build], cwd=tree, check=True, capture_output=True, text=True)
    (archive,) = tree.parent.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        found = {Path(*Path(member.name).parts[1:]) for member in packed if member.isfile()}
    assert set(tracked("tests")) - found == set()
