"""Every benchmark of the TSV family and V*, end to end on a file in its layout, under several protocols."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.data.benchmarks import make_vstar
from tests.judge.server import serve
from tests.runs.commands import setting, vtune
from tests.runs.evaluate.rereading import reread
from vtune.config import find, load_recipe
from vtune.data.formats.table import FORMATS
from vtune.errors import RecipeError, ServiceError
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.sandbox.forkserver import ForkServer

SMALL = setting(
    dtype="float32",
    threads=1,
    images__max_pixels=12544,
    rollout__max_tokens=4000,
    rollout__max_new_tokens=60,
    published__md5="null",
)


# suite -> its replies; protocol -> (score, unreadable, score with the protocol's own fallback or None)
CASES: dict[str, tuple[list[str], dict[str, tuple[float, int, float | None]]]] = {
    # Truths A, D, A, B: the text of an option, a letter too early, a letter, nothing.
    "vstar": (
        ["red it is", "Because I see blue, D", "A", "hm"],
        {
            "vtune": (3 / 4, 1, None),
            "vlmevalkit": (3 / 4, 1, (3 + 1 / 3) / 4),
            "lmms-eval": (1 / 4, 1, None),
            "evalscope": (2 / 4, 2, None),
            "mars": (2 / 4, 2, None),
            "paper": (3 / 4, 1, (3 + 1 / 3) / 4),
        },
    ),
    # Four rotations of two questions, "red" right: A, D, C, B.
    "hrbench-4k": (
        ["A", "D", "C", "B", "(A)", "A red car, D", "red", "hm"],
        {
            "vtune": (7 / 8, 1, None),
            "official": (7 / 8, 1, (7 + 1 / 5) / 8),
            "lmms-eval": (7 / 8, 1, None),
            "mars": (6 / 8, 2, None),
        },
    ),
    "mme-realworld-lite": (
        ["the answer: A", "Based on it, E"],
        {
            "vtune": (1.0, 0, None),
            "vlmevalkit": (0.5, 0, None),
            "official": (0.5, 0, None),
            "lmms-eval": (0.5, 0, None),
            "mars": (0.5, 1, None),
        },
    ),
    "treebench": (
        ["B.", "B, though I saw a red one over there on the left"],
        {"vtune": (0.5, 1, None), "vlmevalkit": (0.5, 1, 0.6)},
    ),
    "mmmu": (
        ["(A)", "is one"],
        {
            "vtune": (0.5, 0, None),
            "official": (1.0, 0, None),
            "lmms-eval": (1.0, 0, None),
            "vlmevalkit": (0.5, 1, 2 / 3),
        },
    ),
    "mmmu-pro-10c": (
        ["Answer: A", "hm"],
        {
            "vtune": (0.5, 1, None),
            "official": (0.5, 1, 1.0),
            "vlmevalkit": (0.5, 1, 0.75),
            "lmms-eval": (0.5, 1, 1.0),
        },
    ),
    "mmmu-pro-v": (
        ["(B)", "B"],
        {"vtune": (1.0, 0, None), "official": (1.0, 0, None), "lmms-eval": (0.5, 1, None)},
    ),
    "countbench": (
        ["12", "three"],
        {
            "vtune": (0.0, 1, None),
            "vlmevalkit": (0.5, 0, None),
            "lmms-eval": (0.5, 0, None),
            "paper": (0.5, 0, None),
        },
    ),
    # Truths 3, No, 5, "4,5"
    "vlmblind": (
        ["{3}", "I do not know", "15", "rows={4} columns={5}"],
        {"vtune": (0.5, 0, None), "vlmevalkit": (1.0, 0, None), "lmms-eval": (0.5, 1, None)},
    ),
    # A box from (20, 20) to (70, 60) on 200 x 120 pixels, shown as 112 x 56.
    "screenspot-pro": (
        ["(45, 40)", '<tool_call>\n{"arguments": {"coordinate": [25, 20]}}\n</tool_call>'],
        {
            "vtune": (0.5, 1, None),
            "official": (0.5, 1, None),
            "lmms-eval": (1.0, 0, None),
            "vlmevalkit": (0.0, 2, None),
            "paper": (0.5, 1, None),
        },
    ),
    "refcoco": (
        ["[0.1, 0.2, 0.35, 0.5]", "[20, 20, 70, 60]"],
        {"vtune": (0.5, 0, None), "lmms-eval": (0.5, 0, None)},
    ),
    "refcoco-tsv": (
        ["[0.1, 0.2, 0.35, 0.5]", "[100, 160, 350, 500]"],
        {"vtune": (0.0, 0, None), "vlmevalkit": (1.0, 0, None)},
    ),
    # "Exit", B, a box and a field, in four categories.
    "ocrbench-v2": (
        ["an exit", "(B)", "[100, 160, 350, 330]", "none"],
        dict.fromkeys(
            ("vtune", "official", "vlmevalkit", "lmms-eval", "paper"), ((1 + 1 + 0.5 + 0) / 4, 1, None)
        ),
    ),
    # Truths green (B), 3, 1.5 to one decimal, [2007, 2008]; no model reads the rest.
    "mathvista": (
        ["B", "3.0", "1.46", "[2007, 2008]"],
        {
            "vtune": (3 / 4, 0, None),
            "official": (1.0, 0, None),
            "lmms-eval": (1.0, 0, None),
            "vlmevalkit": (1 / 4, 2, None),
        },
    ),
    # Truths B, B (4), 1/2
    "mathvision": (
        ["B", "is 4.", "\\boxed{0.5}"],
        {
            "vtune": (1.0, 0, None),
            "official": (1.0, 0, None),
            "lmms-eval": (1.0, 0, None),
            "vlmevalkit": (1.0, 0, None),
        },
    ),
    "mathvision-mini": (
        ["\\boxed{B}", "8", "1/2"],
        {"vtune": (2 / 3, 0, None), "official": (2 / 3, 0, None), "vlmevalkit": (2 / 3, 0, None)},
    ),
}  # fmt: skip
TABLE = [(suite, protocol) for suite, (_, protocols) in CASES.items() for protocol in protocols]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file or folder in the layout of each benchmark."""
    found = {}
    for suite in CASES:
        folder = tmp_path_factory.mktemp("data")
        if suite == "vstar":
            found[suite] = make_vstar(folder / "vstar_bench", 4, (60, 40), (10, 10, 20, 20))
            continue
        specimen = FORMATS[load_recipe(find(suite, "eval_suites"), EvalSuite).format].specimen
        assert specimen is not None
        found[suite] = specimen(folder).path
    return found


def evaluated(suite: str, protocol: str, tiny: Path, data: Path, out: Path, *more: str) -> dict[str, Any]:
    words = ["--suite", suite, "--agent", "direct", "--protocol", protocol, "--model", tiny, "--data", data]
    ended = vtune("eval", *words, "--out", out, *SMALL, *more, "--json")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


@pytest.mark.parametrize(("suite", "protocol"), TABLE)
def test_a_scripted_policy_gets_the_protocols_score(
    suite: str, protocol: str, tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    replies, protocols = CASES[suite]
    saying += replies
    score, unreadable, fallback = protocols[protocol]
    found = evaluated(suite, protocol, tiny, data[suite], tmp_path / "out")
    assert found["samples"] == len(replies)
    assert found["score"]["score"] == pytest.approx(score)
    assert found["score"]["unreadable"] == unreadable
    assert found["score"].get("with_fallback") == (None if fallback is None else pytest.approx(fallback))
    assert (found["suite"]["agent"], found["suite"]["protocol"]) == ("direct", protocol)


@pytest.mark.parametrize("agent", ["direct", "codev"])
def test_a_sandbox_is_started_only_if_code_may_run(
    agent: str,
    tiny: Path,
    data: dict[str, Path],
    saying: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start(*_: object) -> ForkServer:
        raise ServiceError("no sandbox on this machine")

    monkeypatch.setattr(ForkServer, "start", start)
    saying += CASES["vstar"][0]
    words = ("--suite", "vstar", "--agent", agent, "--data", data["vstar"], *SMALL)
    ended = vtune("eval", *words, "--model", tiny, "--out", tmp_path / "out")
    assert ended.code == (0 if agent == "direct" else 1), ended.err
    assert ("no sandbox on this machine" in ended.err) == (agent == "codev")


def test_another_protocol_grades_stored_replies_like_a_rollout(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    replies, protocols = CASES["vstar"]
    saying += replies
    evaluated("vstar", "vtune", tiny, data["vstar"], tmp_path / "out")
    for protocol in protocols:
        drawn = evaluated("vstar", protocol, tiny, data["vstar"], tmp_path / protocol)
        assert reread(tmp_path / "out", protocol).score == drawn["score"]["score"]
    with pytest.raises(
        RecipeError, match="protocol `official` has no rule for questions of the kind `vstar`"
    ):
        reread(tmp_path / "out", "official")


def test_the_resolved_suite_evaluates_again_by_itself(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    saying += CASES["vstar"][0]
    first = evaluated("vstar", "vlmevalkit", tiny, data["vstar"], tmp_path / "out")
    ended = vtune(
        "eval", "--suite", tmp_path / "out/suite.yaml", "--model", tiny, "--out", tmp_path / "again", "--json"
    )
    assert ended.code == 0, ended.err
    again = json.loads(ended.out)
    assert again["suite"] == first["suite"]
    assert again["score"] == first["score"]
    words = ["--agent", "direct", "--protocol", "mars", "--model", tiny, "--data", data["vstar"]]
    other = vtune("eval", "--suite", "vstar", *words, "--out", tmp_path / "out", *SMALL, "--resume")
    assert other.code == 2
    assert "suite.protocol" in other.err


def test_an_agents_answer_is_graded_without_its_thoughts(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    saying += ["<think>B? no: red</think>\n<answer>A</answer>"] * 4
    words = ["--agent", "zoom", "--protocol", "vlmevalkit", "--model", tiny, "--data", data["vstar"]]
    ended = vtune("eval", "--suite", "vstar", *words, "--out", tmp_path / "out", *SMALL, "--json")
    assert ended.code == 0, ended.err
    # Truths A, D, A, B.
    assert json.loads(ended.out)["score"]["score"] == 0.5


def test_boxes_of_treebench_are_evidence(data: dict[str, Path]) -> None:
    suite = load_recipe(find("treebench", "eval_suites"), EvalSuite, [f"data=[{data['treebench']}]"])
    assert [sample.evidence[0].bbox for sample in read_records(suite)] == [(20, 20, 70, 60)] * 2


def test_several_rollouts_without_a_temperature_give_a_warning(tiny: Path, data: dict[str, Path]) -> None:
    words = ["--suite", "vstar", "--agent", "codev", "--model", tiny, "--data", data["vstar"], "--dry-run"]
    told = "rollouts is 3 and rollout.temperature is 0: each question is asked 3 times"
    for more, warned in ((("3", "0.0"), True), (("3", "1.0"), False), (("1", "0.0"), False)):
        settings = setting(rollouts=more[0], rollout__temperature=more[1], published__md5="null")
        ended = vtune("eval", *words, *settings)
        assert (ended.code, told in ended.err) == (0, warned), ended.err


def test_prompts_that_leave_no_room_are_refused_before_weights_are_loaded(
    tiny: Path, data: dict[str, Path], tmp_path: Path
) -> None:
    words = ["--suite", "vstar", "--agent", "codev", "--model", tiny, "--data", data["vstar"]]
    limit = setting(rollout__max_tokens=40, published__md5="null")
    for more in (["--dry-run"], ["--out", tmp_path / "out"]):
        ended = vtune("eval", *words, *limit, *more)
        assert ended.code == 2, ended.err
        assert "prompts leave no room for a reply within 40 tokens (rollout.max_tokens)" in ended.err
    assert not (tmp_path / "out").exists()


def test_a_file_with_another_checksum_is_refused_with_both_checksums(
    tiny: Path, data: dict[str, Path], tmp_path: Path
) -> None:
    words = [
        "--suite",
        "countbench",
        "--model",
        tiny,
        "--data",
        data["countbench"],
        "--out",
        tmp_path / "out",
    ]
    ended = vtune("eval", *words)
    assert ended.code == 2
    assert re.search("its MD5 is [0-9a-f]{32}, and fc73c8d4ffa665431448753f094d56ff as published", ended.err)
    assert "--set published.md5=null accepts" in ended.err
    assert not (tmp_path / "out").exists()


def test_a_group_evaluates_available_suites_and_names_the_rest(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saying += ["{3}", "I do not know", "15", "rows={4} columns={5}"]
    here = tmp_path / "sets"
    here.mkdir()
    (here / "VLMBlind.tsv").write_bytes(data["vlmblind"].read_bytes())
    monkeypatch.setenv("VTUNE_DATA", str(here))
    words = ["--agent", "direct", "--protocol", "paper", "--model", tiny, "--out", tmp_path / "out", *SMALL]
    ended = vtune("eval", "--suite", "codev-table3", *words, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert list(found["evaluations"]) == ["vlmblind"]
    assert list(found["missing"]) == ["vstar", "hrbench-4k", "hrbench-8k", "mme-realworld-lite"]
    table = found["groups"]["codev-table3"]
    assert (table["scores"], table["average"], table["no_average"]) == (
        {"vlmblind": 1.0},
        None,
        "the paper gives none",
    )
    assert (tmp_path / "out/vlmblind/results.json").exists()
    again = vtune("eval", "--suite", "codev-table3", *words, "--resume")
    assert again.code == 0, again.err
    assert "missing" in again.out
    both = vtune("eval", "--suite", "vlmblind,codev-table3", *words)
    assert (both.code, "`vlmblind` is named twice" in both.err) == (2, True)
    nothing = vtune("eval", "--suite", "orsta-table2", *words)
    assert (nothing.code, "mega-bench-core: data/MEGA-Bench" in nothing.err.replace(str(here), "data")) == (
        2,
        True,
    )


@pytest.mark.parametrize(("said", "score"), [("TRUE", 1.0), ("FALSE", 0.5)])
def test_visualprobe_is_the_truth_word_for_word_or_a_judges_verdict(
    said: str, score: float, tiny: Path, saying: list[str], tmp_path: Path
) -> None:
    write = FORMATS["visual_probe"].specimen
    assert write is not None
    file = write(tmp_path).path
    (row,) = json.loads(file.read_text())
    file.write_text(json.dumps([row, row | {"doc_id": "1"}]))
    saying += ["White.", "pale"]
    with serve(said) as judge:
        endpoint = judge.endpoint().model_dump_json()
        found = evaluated(
            "visual-probe", "vtune", tiny, file, tmp_path / "out", *setting(reward__judge=endpoint)
        )
    assert found["score"]["score"] == score
    assert found["score"]["categories"]["hard"]["n"] == 2
    assert len(judge.requests) == 2  # the greeting, and the reply that is not the truth word for word
