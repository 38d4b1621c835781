from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.commands import vtune
from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.runs.evaluate.listed import list_suites
from vtune.runs.evaluate.suite import EvalSuite
from vtune.uses import forget, used


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VTUNE_DATA", raising=False)
    (tmp_path / ".config").mkdir()
    return tmp_path


def place(*words: str) -> str:
    (path,) = load_recipe(find("vstar", "eval_suites"), EvalSuite, words).data
    return path


def test_data_are_taken_from_the_first_place_that_has_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place() == "data/vstar_bench"
    config = home / ".config/vtune.toml"
    config.write_text(f'[data]\nroot = "{home}/root"\n[data.suites]\n"data/vstar_bench" = "{home}/own"\n')
    # If none of them exists, the first is named.
    assert place() == f"{home}/own"
    (home / "root/vstar_bench").mkdir(parents=True)
    assert place() == f"{home}/root/vstar_bench"
    (home / "own").mkdir()
    assert place() == f"{home}/own"
    monkeypatch.setenv("VTUNE_DATA", str(home / "env"))
    assert place() == f"{home}/own"
    (home / "env/vstar_bench").mkdir(parents=True)
    assert place() == f"{home}/env/vstar_bench"
    assert place("data=[elsewhere]") == "elsewhere"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[data\n", "not TOML"),
        ("[dataa]\nroot = 'x'\n", "dataa"),
        ("[data]\nroots = 'x'\n", "data.roots"),
        ("[data]\nroot = 3\n", "data.root"),
        ("[data.suites]\n'data/vstar_bench' = 3\n", "data.suites"),
    ],
)
def test_unreadable_settings_are_reported_with_their_file(text: str, what: str, home: Path) -> None:
    (home / ".config/vtune.toml").write_text(text)
    with pytest.raises(RecipeError, match=what) as raised:
        place()
    assert "vtune.toml" in raised.value.where
    assert "[data.suites]" in raised.value.fix


@pytest.mark.usefixtures("home")
def test_the_list_shows_where_each_suites_data_are_and_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sets/vstar_bench").mkdir(parents=True)
    monkeypatch.setenv("VTUNE_DATA", str(tmp_path / "sets"))
    found = list_suites()
    vstar, blind = found["suites"]["vstar"], found["suites"]["vlmblind"]
    assert (vstar["here"], vstar["data"], vstar["rows"]) == (True, [f"{tmp_path}/sets/vstar_bench"], 191)
    assert vstar["protocols"] == ["vtune", "vlmevalkit", "lmms-eval", "evalscope", "mars", "paper"]
    assert (blind["here"], blind["agent"]) == (False, "codev")
    assert "VLMBlind.tsv" in blind["get"]
    assert "codev-table3" in found["groups"]
    told = vtune("eval", "--list")
    assert told.code == 0
    assert "vlmblind: https://" in told.out
    assert vtune("eval").code == 2


@pytest.mark.usefixtures("home")
def test_the_list_shows_each_suites_licence_or_why_none_is_known() -> None:
    suites = list_suites()["suites"]
    assert [
        name for name, one in suites.items() if (one["licence"] is None) != bool(one["licence_why"])
    ] == []
    assert suites["vstar"]["revision"] == "d9ae62c903da0c98336e85c5ee89cd863b04b4da"
    for name, one in suites.items():  # following the remedy must lead to what is accepted
        assert one["revision"] is None or f"--revision {one['revision']} " in one["get"], name
    told = vtune("eval", "--list").out
    assert "no licence known" in told
    assert "mmsearch-plus: its card states none" in told


def test_a_suite_cannot_use_a_protocol_without_a_rule_for_it() -> None:
    for word, told in (("official", "`official` has no rule"), ("offical", "did you mean `official`")):
        with pytest.raises(RecipeError, match=told):
            load_recipe(find("vstar", "eval_suites"), EvalSuite, [f"protocol={word}"])
    with pytest.raises(RecipeError, match="did you mean `codev`"):
        load_recipe(find("vstar", "eval_suites"), EvalSuite, ["agent=codex"])
    with pytest.raises(RecipeError, match="itself defines how multiple choice is asked"):
        load_recipe(
            find("vstar", "eval_suites"),
            EvalSuite,
            [
                "protocol=mars",
                "choices={order: official, template: '{question} {options}', letter_rule: loose}",
            ],
        )


def test_our_own_samples_keep_their_tools_unless_an_agent_is_given() -> None:
    own = find("own", "eval_suites")
    kept = load_recipe(own, EvalSuite)
    assert (kept.offers, kept.answer_in) == (None, None)
    direct = load_recipe(own, EvalSuite, ["agent=direct"])
    assert (direct.offers, direct.answer_in, direct.rollout.max_turns) == ((), "reply", 1)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Unload what a test has added by `uses`."""
    yield
    forget(used())


@pytest.mark.usefixtures("forgotten")
def test_a_custom_protocol_prompts_and_grades(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from vtune.protocols import PROTOCOLS\n"
        "from vtune.protocols.protocol import Protocol, Rule, chose\n"
        "def ask(question, sample):\n    return f'Q {question} ' + ' '.join(sample.choices)\n"
        "def grade(text, sample):\n    return chose(text if text in tuple('ABCD') else None, sample)\n"
        "RULE = Rule(ask=ask, grade=grade, scorer='mean')\n"
        "PROTOCOLS.add('mine', Protocol(about='Mine', rules={'vstar': RULE}))\n"
    )
    shipped = (
        find("vstar", "eval_suites").read_text().replace("protocol: vtune", "protocol: mine\nuses: [mine.py]")
    )
    (tmp_path / "own.yaml").write_text(shipped)
    suite = load_recipe(tmp_path / "own.yaml", EvalSuite)
    assert (suite.protocol, suite.scorer) == ("mine", "mean")
    checked = vtune("parts", "check", tmp_path / "mine.py")
    assert checked.code == 0, checked.out
    assert "protocol" in checked.out
