"""An unwritable output gives exit code 2 with a message before any work, for every verb."""

from pathlib import Path

import pytest

from tests.data.formats.published import written
from tests.runs.commands import evaluation, rl, setting, sft, vtune
from tests.runs.data.test_own_traces import sample
from tests.runs.evaluate.scripted import asked, evaluated, write_script
from tests.runs.evaluate.search_sets import mars_rows
from vtune.schema.parquet import write_samples

pytestmark = pytest.mark.train

READ_ONLY = Path("/proc/sys/kernel")
"""A folder in which not even root can create a file."""


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("mine") / "mine.parquet"
    write_samples(file, [sample()])
    sweep = "variants: {plain: {}}\nseeds: [0]\ndifferences: []\nheld_out: []\nlast_steps: 1\n"
    file.with_name("sweep.yaml").write_text(sweep)
    return file


VERBS = [
    "rl",
    "sft",
    "eval",
    "curate",
    "curate, nothing to do but write",
    "export",
    "data import",
    "data export",
    "data index",
    "data make traces",
    "data make lens",
    "data make shapes",
    "data make trails",
    "data make coco",
    "data make passages",
    "recipes copy",
    "demo",
    "rl sweep",
    "inspect",
    "problems",
]
OF_FINISHED = ["report html", "scores export", "export --as", "sandbox run", "eval --record", "serve agent"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation with replies for an official scorer; next to it code, and questions for the web."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "OCRBench_v2").mkdir()
    data = written("ocrbench_v2", folder / "OCRBench_v2")
    model = write_script(folder / "replies.jsonl", {one.id: ["Hello"] for one in asked("ocrbench-v2", data)})
    evaluated("ocrbench-v2", model, data, folder / "eval", "--agent", "direct", "--protocol", "official")
    mars_rows(folder, "infoseek", 1)
    (folder / "code.py").write_text("print(1)\n")
    return folder / "eval"


def of_finished(verb: str, out: Path, finished: Path, tiny: Path) -> list[str | Path]:
    """A command about an evaluation, or using one, that is valid except for its output."""
    return {
        "report html": ["report", finished, "--html", out],
        "scores export": ["scores", "export", finished, "--out", out],
        "export --as": ["export", finished, out, "--as", "inspect"],
        "sandbox run": ["sandbox", "run", finished.with_name("code.py"), "--out", out],
        "eval --record": [
            *("eval", "--suite", "infoseek", "--agent", "search-web", "--model", tiny, "--record", out),
            *("--data", finished.with_name("infoseek"), "--out", finished.with_name("web")),
            *setting(images__min_pixels=3136),
        ],
        "serve agent": [
            *("serve", "agent", "--agent", "lens-tiny", "--model", tiny, "--port", "0", "--out", out),
            *setting(offers="[]"),
        ],
    }[verb]  # type: ignore[return-value]


def words(verb: str, out: Path, mine: Path, tiny: Path, lens: Path) -> list[str | Path]:
    """A command that is valid except for its output."""
    curated = ["--set", f"sources.own.files=[{mine}]"]
    articles = mine.with_name("articles.jsonl")
    articles.write_text('{"title": "Sark", "text": "An island."}\n')
    few = ["--train", "1", "--eval", "1", "--traces", "1"]
    return {
        "rl": [*rl(tiny, lens / "train.parquet", out)],
        "sft": [*sft(tiny, lens / "traces.parquet", out)],
        "eval": [*evaluation(tiny, lens / "heldout.parquet", out)],
        "curate": ["curate", "own", "--out", out, *curated],
        "curate, nothing to do but write": ["curate", "own", "--out", out, *curated, "--set", "filters=[]"],
        "export": ["export", tiny, out],
        "data import": ["data", "import", "samples", mine, "--out", out],
        "data export": ["data", "export", "verl", mine, "--out", out],
        "data index": ["data", "index", mine, "--out", out],
        "data make passages": ["data", "make", "passages", articles, "--out", out],
        "data make traces": ["data", "make", "traces", "--data", mine, "--out", out],
        "data make lens": ["data", "make", "lens", *few, "--out", out],
        "data make shapes": ["data", "make", "shapes", *few, "--out", out],
        "data make trails": ["data", "make", "trails", *few, "--out", out],
        "data make coco": [
            "data",
            "make",
            "coco",
            "--instances",
            mine,
            "--images",
            mine.parent,
            "--out",
            out,
        ],
        "recipes copy": ["recipes", "copy", "rl/codev", out],
        "demo": ["demo", "--out", out],
        "rl sweep": [
            *("rl", "--recipe", "codev-tiny", "--sweep", mine.with_name("sweep.yaml"), "--out", out),
            *setting(model=tiny, data=f"[{lens / 'train.parquet'}]"),
        ],
        "inspect": ["data", "inspect", mine, "--html", out],
        "problems": ["data", "validate", mine, "--problems", out],
    }[verb]  # type: ignore[return-value]


@pytest.mark.parametrize("verb", [*VERBS, *OF_FINISHED])
@pytest.mark.parametrize("place", ["below a file", "read-only", "no such device folder"])
def test_an_unwritable_output_is_reported_without_a_traceback(
    verb: str, place: str, mine: Path, tiny: Path, lens: Path, finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("here first")
    out = {
        "below a file": tmp_path / "file" / "out",
        "read-only": READ_ONLY / "out",
        "no such device folder": Path("/dev/null/deep/out"),
    }[place]
    about = verb in OF_FINISHED
    ended = vtune(*(of_finished(verb, out, finished, tiny) if about else words(verb, out, mine, tiny, lens)))
    assert ended.code == 2, ended.err + ended.out
    assert "Traceback" not in ended.err
    assert ended.out == ""
    assert "error: " in ended.err
    assert str(out) in ended.err
    assert (tmp_path / "file").read_text() == "here first"
