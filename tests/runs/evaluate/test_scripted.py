"""`--model scripted:FILE`: a suite with scripted replies."""

import json
import shutil
from pathlib import Path

import pytest

from tests.data.benchmarks import hrbench_rows, make_vstar, picture, write_tsv
from tests.runs.commands import Ended, vtune
from tests.runs.evaluate.scripted import LOOK, asked, evaluate, evaluated, write_script
from vtune.config import find, load_recipe
from vtune.data.formats.specimens_tsv import countbench
from vtune.runs.evaluate.questions import fingerprints
from vtune.runs.evaluate.revisions import revisions
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.start import locked
from vtune.schema.parquet import read_trajectories


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_vstar(tmp_path / "vstar_bench", 4, (300, 200), (40, 40, 60, 60))


@pytest.fixture
def names(data: Path) -> list[str]:
    return [sample.id for sample in asked("vstar", data)]


def test_each_question_gets_its_own_reply_turn_by_turn(data: Path, names: list[str], tmp_path: Path) -> None:
    # Truths A, D, A, B, in the order of the questions; the file has another order.
    replies = [(LOOK, "<answer>A</answer>"), ("<answer>D</answer>",), ("<answer>B</answer>",), ("hm",)]
    model = write_script(tmp_path / "r.jsonl", dict(reversed(list(zip(names, replies, strict=True)))))
    found = evaluated("vstar", model, data, tmp_path / "out", "--agent", "zoom")
    assert (found["score"]["score"], found["score"]["unreadable"]) == (0.5, 1)
    assert (found["engine"], len(found["script"])) == ("scripted", 64)
    drawn = list(read_trajectories(tmp_path / "out/trajectories.parquet"))
    assert [len(t.calls) for t in drawn] == [1, 0, 0, 0]
    assert len(drawn[0].images) == 2
    assert all(t.token_ids == () for t in drawn)


def test_rollouts_of_one_question_may_differ(data: Path, names: list[str], tmp_path: Path) -> None:
    lines = [{"id": name, "turns": ["<answer>A</answer>"]} for name in names]
    lines.append({"id": names[0], "rollout": 1, "turns": ["<answer>B</answer>"]})
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ("--agent", "zoom", "--set", "rollouts=2")
    found = evaluated("vstar", f"scripted:{tmp_path / 'r.jsonl'}", data, tmp_path / "out", *words)
    assert found["score"]["score"] == 3 / 8


def test_a_script_that_ends_before_its_conversation_leaves_it_unscored(
    data: Path, names: list[str], tmp_path: Path
) -> None:
    replies = {name: ["<answer>A</answer>"] for name in names} | {names[1]: [LOOK]}
    model = write_script(tmp_path / "r.jsonl", replies)
    words = ("--agent", "zoom", "--set", "reward.max_unscored=0.5")
    found = evaluated("vstar", model, data, tmp_path / "out", *words)
    assert (found["score"]["n"], found["score"]["unscored"]) == (4, 1)
    ended = evaluate("vstar", model, data, tmp_path / "other", "--agent", "zoom")
    assert ended.code == 1
    assert f"the script has 1 turn(s) of question '{names[1]}'" in ended.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": "vstar/0"', "not JSON"),
        ("[1]", "not the turns of a question"),
        ('{"id": "x", "turns": "a"}', "not the turns of a question"),
        ('{"id": "x", "turns": ["a"], "rollout": true}', "not the turns of a question"),
        ('{"id": "x", "turns": ["a"], "cut": "token"}', "`cut` is 'token'"),
        ('{"id": "x", "turns": [], "cut": "turn"}', "`cut` is 'turn'"),
        ('{"id": "x", "turns": ["a"]}\n{"id": "x", "turns": ["b"]}', "has two lines for the same rollout"),
        ('{"id": "x", "turns": ["a"]}', "4 rollout(s) have no line"),
    ],
)
def test_a_bad_script_is_refused_before_generation(text: str, said: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(text)
    ended = evaluate("vstar", f"scripted:{tmp_path / 'r.jsonl'}", data, tmp_path / "out", "--agent", "zoom")
    assert ended.code == 2
    assert said in ended.err
    assert str(tmp_path / "r.jsonl") in ended.err
    assert not (tmp_path / "out").exists()


def test_a_misspelt_question_is_reported_with_the_unmatched_line(
    data: Path, names: list[str], tmp_path: Path
) -> None:
    """Never suggests a question that has its own line; if none is missing, the unmatched line is reported."""
    words = ("--agent", "zoom")
    others = {name: ["<answer>A</answer>"] for name in names[1:]}
    model = write_script(tmp_path / "r.jsonl", others)
    ended = evaluate("vstar", model, data, tmp_path / "out", *words)
    assert (ended.code, "did you mean" in ended.err, "known:" in ended.err) == (2, False, False)
    model = write_script(tmp_path / "r.jsonl", others | {f"{names[0]}x": ["<answer>A</answer>"]})
    ended = evaluate("vstar", model, data, tmp_path / "out", *words)
    assert (ended.code, f"did you mean `{names[0]}x`?" in ended.err) == (2, True)
    every = others | {names[0]: ["<answer>A</answer>"], "vstar/none": ["hm"]}
    model = write_script(tmp_path / "r.jsonl", every)
    note = f"1 id(s) in {tmp_path / 'r.jsonl'} match no question and are left out, the first 'vstar/none'"
    planned = evaluate("vstar", model, data, tmp_path / "out", *words, "--dry-run")
    assert (planned.code, note in planned.err) == (0, True)
    # For a part of a suite, the file may cover more.
    planned = evaluate("vstar", model, data, tmp_path / "out", *words, "--dry-run", "--limit", "2")
    assert (planned.code, "no question" in planned.err) == (0, False)


def test_a_changed_script_is_another_policy(data: Path, names: list[str], tmp_path: Path) -> None:
    model = write_script(tmp_path / "r.jsonl", {name: ["<answer>A</answer>"] for name in names})
    evaluated("vstar", model, data, tmp_path / "out", "--agent", "zoom")
    again = evaluate("vstar", model, data, tmp_path / "out", "--agent", "zoom", "--resume")
    assert again.code == 0, again.err
    write_script(tmp_path / "r.jsonl", {name: ["<answer>B</answer>"] for name in names})
    other = evaluate("vstar", model, data, tmp_path / "out", "--agent", "zoom", "--resume")
    assert other.code == 2
    assert "differs in script" in other.err
    assert "restore the files that it began with" in other.err


def test_only_an_evaluation_accepts_a_script(data: Path, tmp_path: Path) -> None:
    ended = evaluate("vstar", "scripted:none", data, tmp_path / "out", "--agent", "zoom", "--vllm")
    assert ended.code == 2
    assert "give it to `vtune eval`, without --vllm" in ended.err
    served = vtune("serve", "agent", "--agent", "zoom", "--model", "scripted:none")
    assert served.code == 2
    assert "is a file of replies to a suite's questions" in served.err


def test_an_incomplete_benchmark_is_refused_unless_requested(
    data: Path, names: list[str], tmp_path: Path
) -> None:
    model = write_script(tmp_path / "r.jsonl", {name: ["<answer>A</answer>"] for name in names})
    mine = tmp_path / "mine.yaml"
    shutil.copy(find("vstar", "eval_suites"), mine)
    words = ["--model", model, "--agent", "zoom", "--dry-run", "--set", f"data=[{data}]"]
    for suite, rows, more, code in (
        ("vstar", 191, (), 2),
        ("vstar", 5, (), 2),
        ("vstar", 4, (), 0),
        ("vstar", 191, ("--limit", "4"), 0),
        ("vstar", "null", (), 0),
        ("vstar", 191, ("--data", str(data)), 0),
        (mine, 191, (), 0),
    ):
        ended = vtune("eval", "--suite", suite, *words, "--set", f"published.rows={rows}", *more)
        assert ended.code == code, ended.err
        if code:
            assert f"there are 4 questions, but {rows} as published" in ended.err
            assert str(data) in ended.err
            assert "--set published.rows=null accepts" in ended.err


def test_row_errors_of_a_suite_do_not_refer_to_an_import(tmp_path: Path) -> None:
    rows = [row | {"cycle_category": ""} for row in hrbench_rows([picture(0, (300, 200), (40, 40, 60, 60))])]
    data = write_tsv(tmp_path / "hr_bench_4k.tsv", rows)
    model = write_script(tmp_path / "r.jsonl", {})
    ended = evaluate("hrbench-4k", model, data, tmp_path / "out", "--dry-run")
    assert "it has no `cycle_category`" in ended.err
    assert "correct these rows" in ended.err
    assert "data import" not in ended.err

    bad = write_tsv(tmp_path / "hr_bench_8k.tsv", [rows[0] | {"category": "none"}])
    ended = evaluate("hrbench-8k", model, bad, tmp_path / "out", "--dry-run")
    assert "`vtune data import hrbench PATH --out FILE` lists all of them" in ended.err


def test_results_record_the_data_revision_and_a_suite_may_require_one(tmp_path: Path) -> None:
    data = make_vstar(tmp_path / "vstar_bench", 2, (60, 40), (10, 10, 20, 20))
    notes = data / ".cache/huggingface/download"
    (notes / "direct_attributes").mkdir(parents=True)
    commit = "d9ae62c" + "0" * 33
    for name in ("test_questions.jsonl", "direct_attributes/0.jpg"):
        (notes / f"{name}.metadata").write_text(f"{commit}\nsum\n1700000000.0\n")
    (notes / "torn.metadata").write_text("not a commit\n")
    assert revisions([str(data), str(data / "test_questions.jsonl")]) == {
        str(data): [commit],
        str(data / "test_questions.jsonl"): [commit],
    }
    assert revisions([str(tmp_path / "elsewhere")]) == {}
    # The time of the download does not make the data different.
    suite = load_recipe(find("vstar", "eval_suites"), EvalSuite, [f"data=[{data}]"])
    before = fingerprints(suite)
    (notes / "test_questions.jsonl.metadata").write_text(f"{commit}\nsum\n1800000000.0\n")
    assert fingerprints(suite) == before
    model = write_script(tmp_path / "r.jsonl", {sample.id: ["A"] for sample in asked("vstar", data)})

    def run(name: str, wanted: str) -> Ended:
        return evaluate("vstar", model, data, tmp_path / name, "--set", f"published.revision={wanted}")

    ended = run("out", "d9ae62c")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["environment"]["revisions"] == {str(data): [commit]}
    # The suite has a revision; data without a note may have any.
    ended = evaluate("vstar", model, data, tmp_path / "shipped")
    assert ended.code == 2
    assert f"it is at revision {commit}, but the suite wants d9ae62c9" in ended.err
    assert "--set published.revision=null accepts any" in ended.err
    other = make_vstar(tmp_path / "copied", 2, (60, 40), (10, 10, 20, 20))
    assert evaluate("vstar", model, other, tmp_path / "copy").code == 0
    ended = run("other", "e9d6be6")
    assert ended.code == 2
    assert f"it is at revision {commit}, but the suite wants e9d6be6" in ended.err


def test_two_processes_cannot_evaluate_in_one_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = countbench(tmp_path).path
    model = write_script(tmp_path / "r.jsonl", {one.id: ["3"] for one in asked("countbench", data)})
    with locked(out):
        ended = evaluate("countbench", model, data, out, "--agent", "direct")
    assert (ended.code, "another process is working in" in ended.err) == (2, True)
    assert not (out / "suite.yaml").exists()
    assert evaluate("countbench", model, data, out, "--agent", "direct").code == 0
