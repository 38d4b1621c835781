"""Suite files written as the page describes, over imported samples."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.runs.evaluate.scripted import evaluated, write_script
from vtune.config import load_recipe
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unasked import warn_of_unasked
from vtune.schema.message import Message
from vtune.schema.parquet import write_samples
from vtune.schema.sample import Sample

OPEN, MULTIPLE_CHOICE = (
    block
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "eval_suites/README.md").read_text(), re.DOTALL)
    if "agent: direct" in block
)
SERVED = "openai:http://127.0.0.1:1/v1#model"


def written(folder: Path, text: str, *samples: Sample) -> Path:
    """A suite file, and the data that it names."""
    write_samples(folder / "held.parquet", samples)
    file = folder / "mine.yaml"
    file.write_text(text.replace("held.parquet]", f"{folder}/held.parquet]"))
    return file


def sample(name: str, verifier: str, truth: str, *, lines: str = "", **more: Any) -> Sample:
    prompt = (Message("user", f"Which colour?{lines}"),)
    return Sample(id=name, source="mine", prompt=prompt, ground_truth=truth, verifier=verifier, **more)


def test_a_right_word_counts_with_an_agent_that_asks_for_no_tags(tmp_path: Path) -> None:
    file = written(tmp_path, OPEN, sample("mine/0", "exact", "red"), sample("mine/1", "exact", "blue"))
    model = write_script(tmp_path / "r.jsonl", {"mine/0": ["red"], "mine/1": ["red"]})
    found = evaluated(file, model, tmp_path / "held.parquet", tmp_path / "out")
    assert found["score"]["score"] == 0.5
    named = evaluated(file, model, tmp_path / "held.parquet", tmp_path / "named", "--agent", "direct")
    assert named["score"] == found["score"]


def test_a_right_letter_counts_with_an_agent_that_asks_for_no_tags(tmp_path: Path) -> None:
    question = sample("mine/0", "choice", "B", lines="\nA. red\nB. blue", choices=("red", "blue"))
    file = written(tmp_path, MULTIPLE_CHOICE, question)
    model = write_script(tmp_path / "r.jsonl", {"mine/0": ["B"]})
    assert evaluated(file, model, tmp_path / "held.parquet", tmp_path / "out")["score"]["score"] == 1


def test_the_answer_place_set_by_samples_or_file_is_used(tmp_path: Path) -> None:
    boxed, silent = (
        sample("mine/0", "math", "7", verifier_parm={"answer_in": "boxed"}),
        sample("mine/1", "math", "7"),
    )
    file = written(tmp_path, OPEN, boxed, silent)

    def places(*words: str) -> list[object]:
        return [
            one.verifier_parm.get("answer_in") for one in read_records(load_recipe(file, EvalSuite, words))
        ]

    assert places() == ["boxed", "reply"]
    assert places("answer_in=tag") == ["tag", "tag"]
    file.write_text(file.read_text().replace("agent: direct", "agent: codev"))
    assert places() == ["boxed", None]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param((), "", id="the whole reply is read"),
        pytest.param(
            ("answer_in=tag",),
            "1 of the first 1 questions never tell the model",
            id="tags",
        ),
        pytest.param(("answer_in=boxed",), r"to answer in \boxed", id="a box"),
        pytest.param(("answer_in=tag", "rollout.prompt=tools"), "", id="the prompt asks for tags"),
    ],
)
def test_an_answer_place_that_no_prompt_asks_for_is_reported(
    words: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = load_recipe(written(tmp_path, OPEN, sample("mine/0", "exact", "red")), EvalSuite, words)
    warn_of_unasked(suite, SERVED, count=1)
    said = capsys.readouterr().err
    assert told in said if told else not said


def test_rewarded_tags_do_not_set_the_answer_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paid = replace(sample("mine/0", "exact", "red"), format_ratio=0.1)
    suite = load_recipe(written(tmp_path, OPEN, paid), EvalSuite)
    warn_of_unasked(suite, SERVED, count=1)
    assert capsys.readouterr().err == ""
