"""Evaluations of a fake model behind an endpoint with predetermined looks and answers."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.judge.server import FakeJudge, Reply, serve
from tests.rollout.endpoint import Looker, pictures_of
from tests.runs.commands import Ended, evaluation, setting, vtune
from tests.runs.habits import NUMBERS
from vtune.models.pictures import PixelBudget
from vtune.schema.parquet import read_samples, read_trajectories

BUDGET = PixelBudget(min_pixels=3136, max_pixels=12544)
"""The pixel budget of the suite `lens`."""
PRICES = "{input: 2.0, cached_input: 1.0, output: 10.0, currency: EUR}"


@pytest.fixture
def looker(lens: Path) -> Looker:
    return Looker(list(read_samples(lens / "heldout.parquet")), BUDGET)


def evaluate(model: FakeJudge, lens: Path, out: Path, *more: str) -> Ended:
    name = f"openai:http://127.0.0.1:{model.port}/v1#looker"
    words = evaluation(Path("unused"), lens / "heldout.parquet", out, *setting(openai__api_key_env="null"))
    words[words.index("--model") + 1] = name
    return vtune(*words, *setting(rollout__max_new_tokens=90), *more, "--json")


def failing(rule: Callable[[dict[str, Any]], Reply], *, every: int) -> Callable[[dict[str, Any]], Any]:
    """The rule, but every n-th request is answered with 503."""
    lock, count = threading.Lock(), 0

    def answer(body: dict[str, Any]) -> Any:
        nonlocal count
        with lock:
            count += 1
            failed = count % every == 0
        return 503 if failed else rule(body)

    return answer


def test_the_score_of_a_served_model_matches_its_replies(looker: Looker, lens: Path, tmp_path: Path) -> None:
    with serve(looker) as model:
        ended = evaluate(model, lens, tmp_path / "out", *setting(openai__prices=PRICES))
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    found = result["faithfulness"]
    assert {name: found[name]["value"] for name in NUMBERS} == pytest.approx(NUMBERS)
    assert (found["n"], found["n_unscored"]) == (6, 0)
    assert result["sources"]["lens"]["accuracy"] == pytest.approx(2 / 3)
    assert result["engine"] == "openai"
    assert "response_tokens" not in result["sources"]["all"]
    assert result["endpoint"] == {
        "url": f"http://127.0.0.1:{model.port}/v1",
        "model": "looker",
        "turns": 10,  # four samples are looked at
        "input_tokens": 100,
        "cached_input_tokens": 0,
        "output_tokens": 50,
        "uncounted": 0,
        "answered_by": ["judge-1"],
        "system_fingerprints": ["fp_1"],
        "without": [],
        "cost": {"amount": pytest.approx(0.0007), "currency": "EUR"},
    }
    drawn = list(read_trajectories(tmp_path / "out/trajectories.parquet"))
    assert [t.tool_scores for t in drawn] == [(1.0,), (-0.5,), ()] * 2
    assert all(t.token_ids == () and t.logprobs == () and t.loss_mask == () for t in drawn)
    assert drawn[0].messages[-3].content.endswith("</code>")


def test_pictures_and_tool_output_are_turns_of_the_user(looker: Looker, lens: Path, tmp_path: Path) -> None:
    with serve(looker) as model:
        assert evaluate(model, lens, tmp_path / "out", "--limit", "1").code == 0
    _, first, second = model.requests  # the very first is a greeting
    settings = {name: value for name, value in first.items() if name != "messages"}
    seed = settings.pop("seed")
    assert settings == {
        "model": "looker",
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 90,
        "stop": ["</code>"],
    }
    assert 0 <= seed < 2**31
    assert [message["role"] for message in first["messages"]] == ["user"]
    assert [picture.size for picture in pictures_of(first["messages"][0])] == [(112, 112)]
    asked, said, shown = second["messages"]
    assert asked == first["messages"][0]
    assert said["role"] == "assistant"
    assert said["content"].endswith("</code>")
    assert shown["role"] == "user"
    assert "<sandbox_output>" in shown["content"][0]["text"]
    assert len(pictures_of(shown)) == 1


def test_an_occasionally_failing_endpoint_gives_the_same_scores(
    looker: Looker, lens: Path, tmp_path: Path
) -> None:
    scores = {}
    for name, rule in (("steady", looker), ("shaky", failing(looker, every=5))):
        with serve(rule) as model:
            ended = evaluate(model, lens, tmp_path / name)
        assert ended.code == 0, ended.err
        result = json.loads(ended.out)
        scores[name] = (result["score"], result["sources"], result["faithfulness"])
    assert len(model.requests) > 11
    assert scores["steady"] == scores["shaky"]


def test_an_endpoint_that_is_down_ends_the_evaluation_before_it_begins(lens: Path, tmp_path: Path) -> None:
    with serve(503) as model:
        ended = evaluate(model, lens, tmp_path / "out")
    assert ended.code == 1
    assert "the model gave no reply: InternalServerError" in ended.err
    assert not (tmp_path / "out").exists()


def test_an_endpoint_that_dies_leaves_nothing_scored(looker: Looker, lens: Path, tmp_path: Path) -> None:
    with serve("1", 503) as model:  # answers the greeting
        ended = evaluate(model, lens, tmp_path / "out", *setting(openai__retries=0))
    assert ended.code == 1
    assert "100.0% of the trajectories are unscored" in ended.err
    assert "the model gave no reply: InternalServerError" in ended.err
    assert not (tmp_path / "out/results.json").exists()
    with serve(looker) as model:
        name = f"openai:http://127.0.0.1:{model.port}/v1#looker"
        again = evaluate(model, lens, tmp_path / "out", "--resume", *setting(openai__retries=0))
        assert again.code == 2  # a model at another port is another model
        assert "differs in model" in again.err
        assert name not in (tmp_path / "out/started.json").read_text()


def test_a_question_without_a_reply_is_unscored_not_zero(looker: Looker, lens: Path, tmp_path: Path) -> None:
    def but_one(body: dict[str, Any]) -> Reply:
        return (400, {"message": "content policy"}) if looker.number(body) == 0 else looker(body)

    with serve(but_one) as model:
        ended = evaluate(model, lens, tmp_path / "out", *setting(reward__max_unscored=0.5))
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert result["sources"]["all"]["unscored"] == pytest.approx(1 / 6)
    assert result["sources"]["all"]["accuracy"] == pytest.approx(3 / 5)  # one right, 3 of 5 others
    first = next(iter(read_trajectories(tmp_path / "out/trajectories.parquet")))
    assert first.stop_reason == "error"
    assert first.reward is not None
    assert first.reward.total is None
    assert "content policy" in first.reward.why


def test_resume_retries_failed_questions_of_a_finished_evaluation(
    looker: Looker, lens: Path, tmp_path: Path
) -> None:
    refuses = True

    def at_first(body: dict[str, Any]) -> Reply:
        return (400, {"message": "busy"}) if refuses and looker.number(body) == 0 else looker(body)

    most = setting(reward__max_unscored=0.5)
    with serve(at_first) as model:
        assert evaluate(model, lens, tmp_path / "whole", *most).code == 0
        refuses = False
        model.requests.clear()
        ended = evaluate(model, lens, tmp_path / "whole", *most, "--resume")
        assert (ended.code, "except for 1 rollout(s) without a score" in ended.err) == (0, True), ended.err
        assert json.loads(ended.out)["sources"]["all"]["unscored"] == 0
        assert {looker.number(body) for body in model.requests if "messages" in body} >= {0}
        model.requests.clear()
        assert "nothing is left to do" in evaluate(model, lens, tmp_path / "whole", *most, "--resume").err
        assert not model.requests


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openai:http://localhost:1/v1", "names no endpoint and model"),
        ("openai:localhost:1/v1#m", "names no endpoint and model"),
        ("openai:https://me:secret@host/v1#m", "holds a user, a password or a query"),
        ("openai:https://host/v1?key=secret#m", "holds a user, a password or a query"),
    ],
)
def test_an_address_is_checked_and_secrets_are_not_repeated(
    name: str, message: str, lens: Path, tmp_path: Path
) -> None:
    words = evaluation(Path("unused"), lens / "heldout.parquet", tmp_path / "out")
    words[words.index("--model") + 1] = name
    ended = vtune(*words)
    assert ended.code == 2
    assert message in ended.err
    assert "secret" not in ended.err


def test_a_key_that_is_not_set_is_named(lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    words = evaluation(Path("unused"), lens / "heldout.parquet", tmp_path / "out")
    words[words.index("--model") + 1] = "openai:http://127.0.0.1:9/v1#m"
    ended = vtune(*words)
    assert ended.code == 2
    assert "no environment variable OPENAI_API_KEY" in ended.err
    assert "openai.api_key_env" in ended.err


def test_the_key_is_sent_but_never_written(
    looker: Looker, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    with serve(looker) as model:
        more = setting(openai__api_key_env="MY_KEY")
        assert evaluate(model, lens, tmp_path / "out", "--limit", "1", *more).code == 0
    assert model.keys == {"Bearer sk-very-secret"}
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) > 4
    assert not [path for path in files if b"very-secret" in path.read_bytes()]


def test_training_refuses_a_model_without_visible_tokens(lens: Path, tmp_path: Path) -> None:
    name = "openai:http://127.0.0.1:9/v1#looker"
    for verb, recipe, data in (("rl", "codev-tiny", "train"), ("sft", "codev-tiny", "traces")):
        settings = setting(model=name, data=f"[{lens / data}.parquet]")
        ended = vtune(verb, "--recipe", recipe, "--out", str(tmp_path / verb), *settings)
        assert ended.code == 2
        assert "looker is behind an endpoint, which gives neither weights nor tokens" in ended.err
