"""Every benchmark of search agents, end to end on rows of its shape, under its protocols, with a judge."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vtune.runs.agent.engines as vtune_engines
from tests.judge.server import FakeJudge, serve
from tests.runs.commands import Ended, setting, vtune
from tests.runs.evaluate.reading import JUDGED
from tests.runs.evaluate.search_sets import REPLIES, data_of, judge
from tests.runs.evaluate.test_suites import CASES as FROM_FILES
from tests.runs.evaluate.test_suites import SMALL, Saying
from vtune.config import find, load_recipe
from vtune.errors import DataError, RecipeError
from vtune.runs.evaluate.grading import regrade
from vtune.runs.evaluate.groups import GROUPS, Group
from vtune.runs.evaluate.listed import list_suites
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite

# Of REPLIES: (score, unreadable, further scores)
Expected = tuple[float, int, dict[str, float]]
OURS: Expected = (2 / 6, 1, {})
"""A reply with two answers is read whole, and names nobody."""
MARS: Expected = (3 / 6, 1, {})
"""Its last answer counts."""
F1: Expected = ((1 + 1 / 3) / 6, 1, {})
EXACT: Expected = (1 / 6, 1, {})
CLASSES: Expected = (2 / 6, 1, {"not_attempted": 2, "given_attempted": 2 / 4, "f1": 0.4})
EXTRACTED: Expected = OURS
CASES: dict[str, dict[str, Expected]] = {
    "mmsearch": {"vtune": OURS, "mars": MARS, "paper": MARS, "official": F1},
    "hr-mmsearch": {"vtune": OURS, "mars": MARS, "paper": MARS},
    "fvqa-test": {"vtune": OURS, "mars": MARS, "paper": MARS, "official": EXACT},
    "infoseek": {"vtune": OURS, "mars": MARS, "paper": MARS},
    "simplevqa": {"vtune": OURS, "mars": MARS, "paper": MARS, "official": CLASSES},
    "livevqa": {"vtune": OURS, "mars": MARS, "paper": MARS, "official": CLASSES},
    "mat-search": {"vtune": OURS, "mars": MARS, "paper": MARS},
    "browsecomp-vl": {"vtune": OURS, "mars": MARS, "official": EXTRACTED},
    # Two questions: REPLIES[0] and REPLIES[5].
    "mmsearch-plus": {"vtune": (1 / 2, 0, {}), "mars": (1.0, 0, {})},
}
TABLE = [(suite, protocol) for suite, protocols in CASES.items() for protocol in protocols]
WITHOUT_JUDGE = {("mmsearch", "official"), ("fvqa-test", "official")}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {suite: data_of(suite, tmp_path_factory.mktemp("data")) for suite in CASES}


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    replies: list[str] = []
    monkeypatch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Saying(policy.chat, replies))
    return replies


@pytest.fixture
def grader() -> Iterator[FakeJudge]:
    with serve(judge) as fake:
        yield fake


def asking(fake: FakeJudge | None, **changes: Any) -> list[str]:
    if fake is None:
        return []
    return setting(reward__judge=fake.endpoint(**changes).model_dump_json().replace('"', "'"))


def evaluated(
    suite: str, protocol: str, tiny: Path, data: Path, out: Path, *more: str, fake: FakeJudge | None
) -> Ended:
    words = ["--suite", suite, "--agent", "direct", "--protocol", protocol, "--model", tiny, "--data", data]
    return vtune("eval", *words, "--out", out, *SMALL, *asking(fake, retries=0), *more, "--json")


@pytest.mark.parametrize(("suite", "protocol"), TABLE)
def test_a_scripted_policy_has_the_score_that_its_protocol_gives(
    suite: str,
    protocol: str,
    tiny: Path,
    data: dict[str, Path],
    saying: list[str],
    grader: FakeJudge,
    tmp_path: Path,
) -> None:
    saying += [REPLIES[0], REPLIES[5]] if suite == "mmsearch-plus" else REPLIES
    score, unreadable, further = CASES[suite][protocol]
    alone = (suite, protocol) in WITHOUT_JUDGE
    ended = evaluated(suite, protocol, tiny, data[suite], tmp_path / "out", fake=None if alone else grader)
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["samples"] == len(saying)
    assert found["score"]["score"] == pytest.approx(score)
    assert found["score"]["unreadable"] == unreadable * found["suite"]["rollouts"]
    times = found["suite"]["rollouts"]
    for name, value in further.items():
        assert found["score"][name] == pytest.approx(value * (times if name == "not_attempted" else 1))
    assert bool(grader.requests) != alone


def test_every_suite_that_has_two_protocols_is_tried_with_two() -> None:
    listed = list_suites()["suites"]
    several = {name for name, suite in listed.items() if len(suite["protocols"]) > 1}
    # Read as another suite; fields that wait for their scorer: test_scorers; sets: test_detection_sets.
    others = {"hrbench-8k", "mme-realworld", "mega-bench-core", "coco-val", "ovdeval"}
    assert several - others == set(FROM_FILES) | set(JUDGED) | set(CASES)
    assert all(len(protocols) >= 2 for _, protocols in [*FROM_FILES.values(), *JUDGED.values()])
    group = load_recipe(find("search-table1", GROUPS), Group)
    assert len(group.members) == 7
    assert set(group.members) <= set(CASES)
    assert all(len(protocols) >= 2 for protocols in CASES.values())


def test_the_judge_of_mars_sees_the_picture_and_every_truth_and_an_exact_match_needs_none(
    tiny: Path, data: dict[str, Path], saying: list[str], grader: FakeJudge, tmp_path: Path
) -> None:
    saying += [REPLIES[0], REPLIES[0], REPLIES[2], REPLIES[0], REPLIES[0], REPLIES[0]]
    ended = evaluated("infoseek", "mars", tiny, data["infoseek"], tmp_path / "out", fake=grader)
    assert ended.code == 0, ended.err
    users = [
        request["messages"][1]["content"] for request in grader.requests[1:]
    ]  # the first is the greeting
    assert len(users) == 2  # one a truth, though three rollouts said so
    assert [sum(part["type"] == "image_url" for part in user) for user in users] == [1, 1]
    assert ['"Gustave Eiffel"' in users[0][0]["text"], '"G. Eiffel"' in users[1][0]["text"]] == [True, True]


def test_a_dead_judge_leaves_questions_unscored_and_ends_with_1(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    saying += REPLIES
    greeted = iter(["<judge>Yes</judge>"])
    with serve(lambda body: next(greeted, 500)) as down:
        ended = evaluated("hr-mmsearch", "mars", tiny, data["hr-mmsearch"], tmp_path / "out", fake=down)
        assert (ended.code, "unscored" in ended.err) == (1, True)
        assert not (tmp_path / "out/results.json").exists()


def test_a_judged_protocol_cannot_grade_stored_replies_and_says_so(
    tiny: Path, data: dict[str, Path], saying: list[str], grader: FakeJudge, tmp_path: Path
) -> None:
    saying += REPLIES
    assert evaluated("mmsearch", "mars", tiny, data["mmsearch"], tmp_path / "out", fake=grader).code == 0
    assert regrade(tmp_path / "out", "official")["score"]["score"] == pytest.approx(F1[0])
    with pytest.raises(DataError, match="reads more than the reply"):
        regrade(tmp_path / "out", "mars")
    with pytest.raises(RecipeError, match="judged by another verifier"):
        regrade(tmp_path / "out", "paper")


def test_a_group_gives_the_average_of_the_papers_table_where_nothing_is_missing(
    tiny: Path,
    data: dict[str, Path],
    saying: list[str],
    grader: FakeJudge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saying += REPLIES
    group = load_recipe(find("search-table1", GROUPS), Group)
    for name in group.members:
        kept = tmp_path / "sets/eval" / data[name].parent.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.symlink_to(data[name].parent)
    monkeypatch.setenv("VTUNE_DATA", str(tmp_path / "sets"))
    words = ["--suite", "search-table1", "--agent", "direct", "--model", tiny, "--out", tmp_path / "out"]
    ended = vtune(
        "eval", *words, *SMALL, *setting(rollouts=1, published__rows="null"), *asking(grader), "--json"
    )
    assert ended.code == 0, ended.err
    table = json.loads(ended.out)["groups"]["search-table1"]
    assert list(table["scores"]) == list(group.members)
    assert table["average"] == pytest.approx(0.5)


def test_rows_say_what_they_offer_and_an_agent_that_is_named_says_it_for_them(data: dict[str, Path]) -> None:
    def offered(suite: str, *words: str) -> tuple[str, ...]:
        loaded = load_recipe(find(suite, "eval_suites"), EvalSuite, [f"data=[{data[suite]}]", *words])
        (tools,) = {sample.tools for sample in read_records(loaded)}
        return tools

    all_three = ("image_zoom_in_tool", "text_search_tool", "image_search_tool")
    assert offered("infoseek") == offered("infoseek", "agent=search") == all_three
    assert offered("infoseek", "agent=zoom") == ("image_zoom_in_tool",)
    assert offered("infoseek", "agent=direct") == ()


def test_a_folder_of_mars_is_named_by_its_folder_and_missing_data_by_how_to_get_them(
    data: dict[str, Path], tiny: Path, tmp_path: Path
) -> None:
    loaded = load_recipe(find("simplevqa", "eval_suites"), EvalSuite, [f"data=[{data['simplevqa']}]"])
    first = next(iter(read_records(loaded)))
    assert (first.source, first.id) == ("simplevqa_en", "simplevqa_en/data/0")
    ended = vtune("eval", "--suite", "simplevqa", "--model", tiny, "--out", tmp_path / "out")
    assert (ended.code, "sensenova/SenseNova-MARS-Data" in ended.err) == (2, True)
