"""Human labels end to end: from the viewer's page to curation and the audit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient

from tests.reward.build import TARGET, looks, sample
from tests.runs.commands import vtune
from vtune.config import dump_recipe, find, load_recipe
from vtune.errors import DataError
from vtune.runs.curate.labels import why_doubted
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.runs.view.opened import Opened
from vtune.runs.view.serving import app_of
from vtune.schema.labels import Judgement, Label, append_label, read_labels
from vtune.schema.message import Message
from vtune.schema.parquet import read_samples, read_trajectories, write_samples, write_trajectories
from vtune.schema.reward import Reward
from vtune.view.place import find_places

HERE = "http://127.0.0.1:8195"
SAID: list[tuple[int, Judgement, str]] = [
    (0, "wrong", "it is blue"),  # had earned 1
    (1, "wrong", ""),  # had earned 0
    (2, "box wrong", "the cup is left of it"),
    (3, "judge erred", ""),
    (4, "wrong", "taken back"),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Five trajectories of five questions: right, wrong, right, right, right; the second and third miss."""
    data = tmp_path / "quiz.parquet"
    asked = (Message("user", f"<image>What colour is cup {n}?") for n in range(5))
    write_samples(data, [sample(TARGET, id=f"quiz/{n}", prompt=(one,)) for n, one in enumerate(asked)])
    folder = tmp_path / "run"
    folder.mkdir()
    recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, [f"data=[{data}]"])
    (folder / "recipe.yaml").write_text(dump_recipe(recipe))
    missed = (0, 0, 12, 12)
    made = [
        replace(
            looks(missed if n in (1, 2) else TARGET, sample_id=f"quiz/{n}"),
            reward=Reward(total=1.0, accuracy=float(n != 1), format=1.0, tool=0.0, why=""),
            tool_scores=(1.0,),
        )
        for n in range(5)
    ]
    write_trajectories(folder / "trajectories" / "step-000000.parquet", made)
    page = TestClient(
        app_of([Opened(p, show=False) for p in find_places(folder)], "t"), base_url=f"{HERE}/t/"
    )
    said = [(row, {"label": label, "note": note}) for row, label, note in SAID]
    for row, label in [*said, (4, {"label": None, "note": ""})]:
        sent = page.post(f"api/0/label/step-000000/{row}", json=label, headers={"origin": HERE})
        assert sent.status_code == 200, sent.text
    return folder


def test_a_label_does_not_apply_to_a_regenerated_trajectory(run: Path, tmp_path: Path) -> None:
    def shown() -> dict[str, str | None]:
        listed = json.loads(vtune("show", run, "--where", "-label:none", "--json").out)
        return {row["key"]: row["label"] for row in listed["trajectories"]}

    file = run / "trajectories" / "step-000000.parquet"
    keys = [f"step-000000/{row}" for row in range(4)]
    assert shown() == dict(zip(keys, ("wrong", "wrong", "box wrong", "judge erred"), strict=True))
    # The run is repeated: the first row now answers another question.
    drawn = list(read_trajectories(file))
    others = replace(drawn[0], sample_id="quiz/4"), replace(drawn[1], rollout=7)
    write_trajectories(file, [*others, *drawn[2:]])
    assert shown().keys() == set(keys[2:])
    one = json.loads(vtune("show", run, keys[0], "--json").out)
    assert one["label"] is None


def test_labels_reach_the_curation_queue_and_its_decisions(run: Path, tmp_path: Path) -> None:
    labels = {"filter": "labels", "files": [str(run / "labels.jsonl")]}
    recipe = {
        "records": "samples",
        "sources": {"quiz": {"files": [str(tmp_path / "quiz.parquet")]}},
        "filters": [labels],
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    out = tmp_path / "out"
    words = ["curate", tmp_path / "r.yaml", "--out", out, "--json"]
    first = vtune(*words)
    assert first.code == 0, first.err
    assert json.loads(first.out)["waiting_for_review"] == 2
    assert [row.id for row in read_samples(out / "samples.parquet")] == ["quiz/1", "quiz/3", "quiz/4"]
    lines = [json.loads(line) for line in (out / "queue.jsonl").read_text().splitlines()]
    assert [(line["id"], line["judge"], line["people"]) for line in lines] == [
        ("quiz/0", None, ["an answer with accuracy 1 is wrong: it is blue"]),
        ("quiz/2", None, ["its box is wrong: the cup is left of it"]),
    ]
    lines[0] |= {"decision": "fix", "corrected": "A"}
    lines[1]["decision"] = "keep"
    (out / "queue.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert vtune(*words).code == 0
    truths = {row.id: row.ground_truth for row in read_samples(out / "samples.parquet")}
    assert truths == {"quiz/0": "A", **{f"quiz/{n}": "B" for n in range(1, 5)}}

    # A label that is added later counts from the next start, though the recipe is the same.
    late = next(iter(read_labels(run / "labels.jsonl").values()))
    append_label(
        run / "labels.jsonl", replace(late, key="step-000000/3", sample_id="quiz/3", label="box wrong")
    )
    again = vtune(*words)
    assert json.loads(again.out)["waiting_for_review"] == 1


def test_labels_are_compared_with_verifiers_and_judges(run: Path) -> None:
    old = Label(key="step-000000/9", sample_id="quiz/9", source="quiz", rollout=0, label="right")
    append_label(run / "labels.jsonl", old)
    told = vtune("faithfulness", run, "--json")
    assert told.code == 0, told.err
    people = json.loads(told.out)["people"]
    assert (people["labelled"], people["not_found"]) == (4, 1)
    assert people["answers"]["all"] == people["answers"]["choice"]
    answers = people["answers"]["all"]
    assert (answers["n"], answers["agree"], answers["first_only"], answers["neither"]) == (2, 0.5, 1, 1)
    assert people["looks"] == {
        "shown": {"labelled": 2, "judge_erred": 1, "box_wrong": 0},
        "not shown": {"labelled": 2, "judge_erred": 0, "box_wrong": 1},
        "not judged": {"labelled": 0, "judge_erred": 0, "box_wrong": 0},
    }
    # Three right answers, one with a wrong box: for that one the truth is unknown.
    assert (people["calibration"]["n"], people["calibration"]["agreement"]["n"]) == (2, 3)
    shown = " ".join(vtune("faithfulness", run).out.split())
    assert "people and verifiers, 2 answers: agree 0.5" in shown
    assert "target not shown by calls, 2 labelled: judge erred 0, box wrong 1" in shown


def test_without_labels_the_audit_reports_nothing_about_people(run: Path) -> None:
    (run / "labels.jsonl").unlink()
    told = vtune("faithfulness", run, "--json")
    assert json.loads(told.out)["people"] == {}
    assert "people" not in vtune("faithfulness", run).out


@pytest.mark.parametrize(
    ("label", "rollout", "accuracy", "doubted"),
    [
        ("right", 0, 1.0, False),
        ("right", 0, 0.0, True),
        ("wrong", 0, 0.6, True),
        ("wrong", 0, 0.4, False),
        ("wrong", 0, None, False),
        ("judge erred", 0, 1.0, False),
        ("box wrong", 0, None, True),
        ("wrong", None, None, True),
        ("right", None, None, False),
    ],
)
def test_a_label_that_contradicts_the_reward_makes_a_sample_doubtful(
    label: Judgement, rollout: int | None, accuracy: float | None, doubted: bool
) -> None:
    said = Label(key="k", sample_id="s", source="s", rollout=rollout, label=label, accuracy=accuracy)
    assert (why_doubted(said) is not None) is doubted


def test_a_file_of_labels_that_is_missing_is_an_error_before_the_first_row(run: Path, tmp_path: Path) -> None:
    recipe = {
        "records": "samples",
        "sources": {"quiz": {"files": [str(tmp_path / "quiz.parquet")]}},
        "filters": [{"filter": "labels", "files": ["none.jsonl"]}],
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    ended = vtune("curate", tmp_path / "r.yaml", "--out", tmp_path / "out")
    assert ended.code == 2
    assert "there is no file of labels none.jsonl" in ended.err
    plan = vtune("curate", tmp_path / "r.yaml", "--dry-run", "--json")
    assert json.loads(plan.out)["filters"]["labels"]["missing"] == "none.jsonl"


def test_a_non_numeric_accuracy_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    append_label(file, Label(key="k", sample_id="s", source="s", rollout=0, label="right"))
    file.write_text(file.read_text().replace('"accuracy": null', '"accuracy": "1"'))
    with pytest.raises(DataError, match="`accuracy` is a number or null"):
        read_labels(file)
