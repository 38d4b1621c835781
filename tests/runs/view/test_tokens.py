"""The tokens of a trajectory: what the record holds for each, and what it does not."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.runs.view.test_serving import HERE, TOKEN
from tests.view.runs import LOOKED, UNSCORED, make_run
from vtune.runs.view.opened import Opened
from vtune.runs.view.serving import app_of
from vtune.view.place import find_places
from vtune.view.tokens import MOST, tokens_of

HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J\u202e"
DRAWN = replace(
    LOOKED,
    token_ids=(0, 9, 9, 9, 1, 2, 0, 3),
    loss_mask=(False, False, False, False, True, True, False, True),
    logprobs=(None, None, None, None, -0.5, -2.0, None, float("-inf")),
    weight_versions=(None, None, None, None, 7, 7, None, 8),
    calls=(replace(LOOKED.calls[0], span=(4, 6)),),
    advantage=-0.5,
    call_advantages=(0.25,),
)


def client(run: Path) -> TestClient:
    opened = [Opened(place, show=False) for place in find_places(run)]
    return TestClient(app_of(opened, TOKEN), base_url=f"{HERE}/{TOKEN}/")


def write_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True)
    words = {"look": 0, "cut": 1, HOSTILE: 2, "4": 3, "pad": 9}
    Tokenizer(WordLevel(words, unk_token="look")).save(str(folder / "tokenizer.json"))


def test_each_token_has_its_stored_values_and_advantage() -> None:
    spelt = replace(DRAWN, token_ids=(9, 9, 0, 0, 0, 2, 0, 3))
    # Two equal tokens may be letters of a word: three are folded.
    assert [(one["id"], one["times"]) for one in tokens_of(spelt, None)["entries"]][:3] == [
        (9, 1),
        (9, 1),
        (0, 1),
    ]
    found = tokens_of(DRAWN, "{}".format)
    assert [(one["at"], one["id"], one["times"], one["text"]) for one in found["entries"]] == [
        (0, 0, 1, "0"),
        (1, 9, 3, "9"),
        (4, 1, 1, "1"),
        (5, 2, 1, "2"),
        (6, 0, 1, "0"),
        (7, 3, 1, "3"),
    ]
    sampled = [one for one in found["entries"] if one["sampled"]]
    # A call that credit spared has its own advantage; a log-probability of minus infinity is not a number.
    assert [(one["logprob"], one["advantage"], one["version"]) for one in sampled] == [
        (-0.5, 0.25, 7),
        (-2.0, 0.25, 7),
        (None, -0.5, 8),
    ]
    assert (found["count"], found["sampled"], found["all"]) == (8, 3, 6)
    assert list(found["missing"]) == ["entropy"]
    known = tokens_of(replace(DRAWN, entropies=(*[None] * 4, 0.5, 1.5, None, float("nan"))), "{}".format)
    assert [one["entropy"] for one in known["entries"] if one["sampled"]] == [0.5, 1.5, None]
    assert not known["missing"]


def test_missing_token_data_is_reported_not_invented() -> None:
    bare = replace(
        DRAWN, logprobs=(), weight_versions=(), advantage=None, call_advantages=(), policy_version=4
    )
    found = tokens_of(bare, None, "no tokenizer")
    assert list(found["missing"]) == ["text", "log-probability", "entropy", "advantage", "weight version"]
    assert "version 4" in found["missing"]["weight version"]
    values = [one[name] for one in found["entries"] for name in ("text", "logprob", "advantage", "version")]
    assert set(values) == {None}
    assert list(tokens_of(UNSCORED, None)["missing"]) == ["tokens"]


def test_long_token_lists_come_in_parts() -> None:
    count = 2 * MOST + 3
    long = replace(
        DRAWN,
        token_ids=tuple(range(count)),
        loss_mask=(True,) * count,
        logprobs=(-1.0,) * count,
        weight_versions=(),
        calls=(),
        call_advantages=(),
    )
    parts = [tokens_of(long, None, first=first)["entries"] for first in (0, MOST, 2 * MOST)]
    assert [one["id"] for part in parts for one in part] == list(range(count))


@pytest.mark.parametrize("where", ["checkpoints/newest", "../model"])
def test_token_texts_come_from_the_checkpoint_or_the_recipes_model(tmp_path: Path, where: str) -> None:
    run = make_run(tmp_path / "run", {0: [DRAWN]})
    (run / "recipe.yaml").write_text(f"model: {tmp_path / 'model'}\n")
    write_tokenizer(run / where)
    found = client(run).get("api/0/tokens/step-000000/0").json()
    assert [one["text"] for one in found["entries"]] == ["look", "pad", "cut", HOSTILE, "look", "4"]
    assert "text" not in found["missing"]


@pytest.mark.parametrize("content", [None, "{}", "[]", "not json"])
def test_without_a_tokenizer_ids_are_shown_and_why(tmp_path: Path, content: str | None) -> None:
    run = make_run(tmp_path / "run", {0: [DRAWN]})
    if content is not None:
        (run / "checkpoints" / "newest").mkdir(parents=True)
        (run / "checkpoints" / "newest" / "tokenizer.json").write_text(content)
    answer = client(run).get("api/0/tokens/step-000000/0")
    assert answer.status_code == 200
    assert "tokenizer.json" in answer.json()["missing"]["text"]
    assert {one["text"] for one in answer.json()["entries"]} == {None}


def test_token_texts_appear_with_the_first_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [DRAWN]})
    page = client(run)
    texts = [page.get("api/0/tokens/step-000000/0").json()["entries"][0]["text"]]
    write_tokenizer(run / "checkpoints" / "newest")
    texts.append(page.get("api/0/tokens/step-000000/0").json()["entries"][0]["text"])
    assert texts == [None, "look"]
