"""Every benchmark for search agents, end to end on rows in its layout, under its protocols, with a judge."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judge.server import FakeJudge, serve
from tests.runs.commands import Ended, setting, vtune
from tests.runs.evaluate.reading import JUDGED
from tests.runs.evaluate.rereading import reread
from tests.runs.evaluate.search_sets import REPLIES, data_of, judge
from tests.runs.evaluate.test_suites import CASES as FROM_FILES
from tests.runs.evaluate.test_suites import SMALL
from vtune.config import find, load_recipe
from vtune.runs.evaluate.against import run_against
from vtune.runs.evaluate.groups import GROUPS, Group
from vtune.runs.evaluate.listed import list_suites
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unjudged import UNJUDGED

# Of REPLIES: (score, unreadable, further scores)
Expected = tuple[float, int, dict[str, float]]
OURS: Expected = (2 / 6, 1, {})
"""A reply with two answers is read as a whole, and names nobody."""
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
ONCE = setting(rollouts=1)
WITHOUT_JUDGE = {("mmsearch", "official"), ("fvqa-test", "official")}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {suite: data_of(suite, tmp_path_factory.mktemp("data")) for suite in CASES}


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
def test_a_scripted_search_policy_gets_the_protocols_score(
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


def test_every_suite_with_two_protocols_is_tested_with_both() -> None:
    listed = list_suites()["suites"]
    several = {name for name, suite in listed.items() if len(suite["protocols"]) > 1}
    # Read like another suite; fields waiting for their scorer: test_scorers; sets: test_detection_sets.
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
    assert len(users) == 2  # one per truth, though three rollouts said so
    assert [sum(part["type"] == "image_url" for part in user) for user in users] == [1, 1]
    assert ['"Gustave Eiffel"' in users[0][0]["text"], '"G. Eiffel"' in users[1][0]["text"]] == [True, True]


def test_a_dead_judge_leaves_questions_unscored_exits_with_1_and_the_run_can_resume(
    tiny: Path, data: dict[str, Path], saying: list[str], grader: FakeJudge, tmp_path: Path
) -> None:
    saying += REPLIES
    suite, out = "hr-mmsearch", tmp_path / "out"
    greeted = iter(["<judge>Yes</judge>"])
    with serve(lambda body: next(greeted, 500)) as down:
        ended = evaluated(suite, "mars", tiny, data[suite], out, *ONCE, fake=down)
    # The first is right word for word, the fourth is empty: neither needs a judge.
    names = [f"hr_mmsearch/data/{number}" for number in (1, 2, 4, 5)]
    assert ended.code == 1
    assert f"4 of 6 replies have no grade: {', '.join(names)}\n" in ended.err
    assert f"{out / UNJUDGED} lists all" in ended.err
    assert "check the model that `reward.judge` names" in ended.err
    rows = [json.loads(line) for line in (out / UNJUDGED).read_text().splitlines()]
    assert [(row["sample_id"], row["rollout"]) for row in rows] == [(name, 0) for name in names]
    assert all("the judge gave no reply" in row["why"] for row in rows)
    assert not (out / "results.json").exists()

    saying.clear()  # generating again would find nothing to say
    ended = evaluated(suite, "mars", tiny, data[suite], out, *ONCE, "--resume", fake=grader)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["score"]["score"] == pytest.approx(MARS[0])
    assert not (out / UNJUDGED).exists()


def test_a_judge_failure_stops_the_evaluation_regardless_of_the_unscored_limit(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    saying += REPLIES
    suite, out, left = "hr-mmsearch", tmp_path / "out", [1]

    def busy(body: dict[str, Any]) -> str | int:
        return 500 if "I do not know" in str(body) and left and left.pop() else judge(body)

    allowed = setting(reward__max_unscored=1.0, rollouts=1)
    with serve(busy) as fake:
        ended = evaluated(suite, "mars", tiny, data[suite], out, *allowed, fake=fake)
        assert (ended.code, "1 of 6 replies have no grade: hr_mmsearch/data/4" in ended.err) == (1, True)
        asked = len(fake.requests)
        ended = evaluated(suite, "mars", tiny, data[suite], out, *allowed, "--resume", fake=fake)
    assert ended.code == 0, ended.err
    # Its greeting, and the only undecided reply, against both truths.
    assert len(fake.requests) == asked + 3


PRICES = {"input": 1.0, "cached_input": 0.1, "output": 1.0, "currency": "EUR"}


@pytest.mark.parametrize(
    ("small", "large", "prices"),
    [({"tokens": 18_000}, {"tokens": 10**9}, None), ({"money": 0.018}, {"money": 9.0}, PRICES)],
)
def test_the_judges_budget_is_kept_and_its_model_prompts_and_cost_reported(
    small: dict[str, float],
    large: dict[str, float],
    prices: dict[str, Any] | None,
    tiny: Path,
    data: dict[str, Path],
    saying: list[str],
    grader: FakeJudge,
    tmp_path: Path,
) -> None:
    saying += REPLIES
    suite, out = "hr-mmsearch", tmp_path / "out"

    def run(budget: dict[str, float], *more: str) -> Ended:
        limits = grader.endpoint(retries=0, concurrency=1, max_tokens=1000, prices=prices, budget=budget)
        words = [*ONCE, *setting(reward__judge=limits.model_dump_json().replace('"', "'"))]
        return evaluated(suite, "mars", tiny, data[suite], out, *words, *more, fake=None)

    ended = run(small)
    assert ended.code == 1
    assert "may exceed" in ended.err
    rows = [json.loads(line) for line in (out / UNJUDGED).read_text().splitlines()]
    assert [row["sample_id"] for row in rows][-1] == "hr_mmsearch/data/5"
    asked = len(grader.requests)
    ended = run(large, "--resume")
    assert ended.code == 0, ended.err
    facts = json.loads(ended.out)["reward.judge"]
    questions = len(grader.requests) - 2  # greetings are not counted
    assert len(grader.requests) > asked
    assert (facts["model"], facts["input_tokens"], facts["output_tokens"]) == (
        "judge",
        10 * questions,
        5 * questions,
    )
    assert len(facts["prompts"]["answers"]) == 64
    cost = None if prices is None else {"amount": pytest.approx(15e-6 * questions), "currency": "EUR"}
    assert facts["cost"] == cost


def test_a_judged_protocol_grades_stored_replies_with_stored_verdicts(
    tiny: Path, data: dict[str, Path], saying: list[str], grader: FakeJudge, tmp_path: Path
) -> None:
    saying += REPLIES
    assert evaluated("mmsearch", "mars", tiny, data["mmsearch"], tmp_path / "out", fake=grader).code == 0
    assert reread(tmp_path / "out", "official").score == pytest.approx(F1[0])
    asked = len(grader.requests)
    for protocol in ("mars", "paper"):
        assert reread(tmp_path / "out", protocol).score == pytest.approx(MARS[0])
    assert len(grader.requests) == asked


def test_differences_between_search_results_are_explained_from_stored_replies(
    tiny: Path, data: dict[str, Path], saying: list[str], grader: FakeJudge, tmp_path: Path
) -> None:
    saying += REPLIES
    suite = "simplevqa"

    def run(name: str, protocol: str, fake: FakeJudge) -> Path:
        ended = evaluated(suite, protocol, tiny, data[suite], tmp_path / name, fake=fake)
        assert ended.code == 0, ended.err
        return tmp_path / name

    def strict(body: dict[str, Any]) -> str:
        return judge(body).replace("Yes", "No")

    mars, classes = run("mars", "mars", grader), run("classes", "official", grader)
    with serve(strict) as other:
        ended = evaluated(
            suite,
            "mars",
            tiny,
            data[suite],
            tmp_path / "strict",
            *setting(reward__judge=other.endpoint(model="strict").model_dump_json().replace('"', "'")),
            fake=None,
        )
    assert ended.code == 0, ended.err
    asked = len(grader.requests)

    found = run_against(mars, str(tmp_path / "strict"))
    assert (found["named"], found["besides"]) == (["judge"], [])
    assert found["difference"] == pytest.approx(2 / 6)
    assert found["explained"] == pytest.approx(found["difference"])
    judged = found["causes"]["judge"]
    assert (judged["items"], judged["keys"]["reward.judge.model"][1]) == (2, "strict")
    back = run_against(tmp_path / "strict", str(mars))
    assert back["explained"] == pytest.approx(-2 / 6)

    found = run_against(mars, str(classes))
    assert found["named"] == ["parser", "judge"]
    assert found["difference"] == pytest.approx(MARS[0] - CLASSES[0])
    assert found["explained"] == pytest.approx(found["difference"])

    # Without the other judge's verdicts, there are no points but a reason.
    (tmp_path / "strict/judge.jsonl").unlink()
    unknown = run_against(mars, str(tmp_path / "strict"))["causes"]["judge"]
    assert (unknown["points"], "replies have no grade" in unknown["why"]) == (None, True)
    assert len(grader.requests) == asked


def test_a_complete_group_gives_the_average_of_the_papers_table(
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


def test_rows_set_their_tools_and_a_named_agent_overrides_them(data: dict[str, Path]) -> None:
    def offered(suite: str, *words: str) -> tuple[str, ...]:
        loaded = load_recipe(find(suite, "eval_suites"), EvalSuite, [f"data=[{data[suite]}]", *words])
        (tools,) = {sample.tools for sample in read_records(loaded)}
        return tools

    all_three = ("image_zoom_in_tool", "text_search_tool", "image_search_tool")
    assert offered("infoseek") == offered("infoseek", "agent=search") == all_three
    assert offered("infoseek", "agent=zoom") == ("image_zoom_in_tool",)
    assert offered("infoseek", "agent=direct") == ()


def test_a_mars_folder_is_named_after_itself_and_missing_data_get_instructions(
    data: dict[str, Path], tiny: Path, tmp_path: Path
) -> None:
    loaded = load_recipe(find("simplevqa", "eval_suites"), EvalSuite, [f"data=[{data['simplevqa']}]"])
    first = next(iter(read_records(loaded)))
    assert (first.source, first.id) == ("simplevqa_en", "simplevqa_en/data/0")
    ended = vtune("eval", "--suite", "simplevqa", "--model", tiny, "--out", tmp_path / "out")
    assert (ended.code, "sensenova/SenseNova-MARS-Data" in ended.err) == (2, True)
