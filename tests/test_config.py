from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, model_validator

from vtune.config import RENAMED, dump_recipe, find, load_recipe
from vtune.differences import differing_keys
from vtune.errors import RecipeError
from vtune.sections import LARGEST, Strict


class Rollout(Strict):
    group_size: int
    temperature: float


class Short(Strict):
    kind: Literal["short"]
    seconds: int


class Long(Strict):
    kind: Literal["long"]
    hours: int


class Plan(Strict):
    steps: int
    rollout: Rollout
    data: tuple[str, ...] = ()
    judge: Rollout | None = None
    steps_of: tuple[Annotated[Short | Long, Field(discriminator="kind")], ...] = ()
    named: Mapping[str, Rollout] = {}


class Few(Plan):
    @model_validator(mode="after")
    def _steps_are_few(self) -> Self:
        if self.steps > 1000:
            raise ValueError("more steps than days")
        return self


GOOD = "steps: 3\nrollout:\n  group_size: 4\n  temperature: 1.0\ndata: [a, b]\n"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(GOOD)
    return path


def problem(path: Path, text: str, *overrides: str) -> str:
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, Plan, overrides)
    return str(caught.value)


def test_a_recipe_is_read_as_written(good: Path) -> None:
    plan = load_recipe(good, Plan)
    assert plan == Plan(steps=3, rollout=Rollout(group_size=4, temperature=1.0), data=("a", "b"))


def test_all_problems_are_reported_at_once_with_their_lines(good: Path) -> None:
    text = problem(good, "steps: many\nrollout:\n  group_sise: 4\n  temperature: 1.0\n")
    assert text.startswith(f"3 problem(s) in {good}")
    assert "plan.yaml:1: `steps`: input should be a valid integer" in text
    assert "plan.yaml:2: `rollout.group_size`: field required" in text
    assert "plan.yaml:3: unknown key `rollout.group_sise`; did you mean `group_size`?" in text


def test_a_value_in_place_of_a_mapping_or_list_says_what_to_write(good: Path) -> None:
    text = problem(good, "steps: 3\nrollout: 5\ndata: a\n")
    assert "plan.yaml:2: `rollout`: write keys with values, e.g. {key: value}" in text
    assert "plan.yaml:3: `data`: write a list, e.g. [a, b]" in text


def test_an_unknown_key_in_an_optional_section_lists_its_known_keys(good: Path) -> None:
    text = problem(good, f"{GOOD}judge: {{group_size: 1, temperature: 1.0, zzz: 0}}\n")
    assert "unknown key `judge.zzz`; known here: group_size, temperature" in text


class Renaming(Strict):
    advantage: Rollout


@pytest.mark.parametrize("old", RENAMED)
def test_a_renamed_key_is_an_error_that_names_the_new_key(good: Path, old: str) -> None:
    section, key = old.split(".")
    good.write_text(f"{section}:\n  group_size: 4\n  temperature: 1.0\n  {key}: 1\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(good, Renaming)
    assert f"plan.yaml:4: unknown key `{old}`; it is called `{RENAMED[old]}` now" in str(caught.value)


def test_a_key_given_twice_is_an_error_with_its_line(good: Path) -> None:
    text = problem(good, f"{GOOD}steps: 4\n")
    assert "key `steps` is given twice" in text
    assert "plan.yaml:6" in text


@pytest.mark.parametrize("text", ["", "just words\n", "- a\n- b\n", "steps: [1\n", "a: \x00\n"])
def test_a_recipe_that_is_not_a_mapping_is_an_error(text: str, good: Path) -> None:
    assert problem(good, text)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("steps: 3\ndata: [a, b\nseed: 0\n", 3, "that begins in line 2"),
        ("steps: 3\nrollout:\n  group_size: 4\n temperature: 1\n", 4, "block mapping"),
        ("steps: 3\n\tdata: 1\n", 2, "cannot start any token"),
        ("steps: 'many\n", 2, "quoted scalar"),
        ("a: \x00\n", None, "not allowed"),
    ],
)
def test_a_syntax_error_is_reported_with_its_line(text: str, line: int | None, what: str, good: Path) -> None:
    told = problem(good, text).splitlines()
    assert len(told) == 3
    assert told[0].startswith("not YAML")
    assert what in told[0]
    assert told[1] == f"  at   {good}" + (f":{line}" if line else "")


def test_an_unknown_kind_gets_a_suggestion(good: Path) -> None:
    text = problem(good, f"{GOOD}steps_of:\n- {{kind: shrt, seconds: 1}}\n")
    assert "plan.yaml:7: unknown kind `shrt` in `steps_of.0`; did you mean `short`?" in text


def test_a_problem_with_the_whole_recipe_is_reported_for_the_file(good: Path) -> None:
    """It is not blamed on a key that was overridden."""
    good.write_text(GOOD.replace("steps: 3", "steps: 2000"))
    with pytest.raises(RecipeError, match=r"plan\.yaml: more steps than days"):
        load_recipe(good, Few, ["data=[c]"])


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no recipe at"):
        load_recipe(tmp_path / "none.yaml", Plan)


def test_overrides_are_applied_in_order_and_checked(good: Path) -> None:
    overrides = ["steps=5", "steps=6", "rollout.temperature=0", "data=[c]"]
    plan = load_recipe(good, Plan, overrides)
    assert (plan.steps, plan.rollout.temperature, plan.data) == (6, 0.0, ("c",))
    assert "--set: `steps`" in problem(good, GOOD, "steps=x")
    assert "--set: unknown key `rollout.top_p`" in problem(good, GOOD, "rollout.top_p=1")
    assert "--set: unknown key `rollot`; did you mean `rollout`?" in problem(good, GOOD, "rollot.top_p=1")
    assert "has no `=`" in problem(good, GOOD, "steps")
    assert "has no key before its `=`" in problem(good, GOOD, "=3")
    assert "`steps` is not a section" in problem(good, GOOD, "steps.a=1")
    null = problem(good, GOOD, "rollout=null", "rollout.temperature=1")
    assert "`rollout` is null here" in null
    assert "give all of it: rollout={key: value, ...}" in null
    assert "steps is true, which is not a value for it" in problem(good, GOOD, "steps=true")
    assert "not YAML" in problem(good, GOOD, "steps=[")


def test_an_override_reaches_into_a_list_by_number(good: Path) -> None:
    text = GOOD + "steps_of:\n- {kind: short, seconds: 1}\n- {kind: long, hours: 2}\n"
    good.write_text(text)
    plan = load_recipe(good, Plan, ["steps_of.1.hours=3", "data.0=c"])
    assert plan.steps_of == (Short(kind="short", seconds=1), Long(kind="long", hours=3))
    assert plan.data == ("c", "b")
    assert "`2` is not one of the 2 items" in problem(good, text, "steps_of.2.hours=3")
    assert "`first` is not one of the 2 items" in problem(good, text, "data.first=c")
    assert "--set: `steps_of.1.hours`" in problem(good, text, "steps_of.1.hours=x")


def test_an_unknown_key_in_a_list_or_mapping_gets_a_suggestion_from_its_section(good: Path) -> None:
    told = problem(good, GOOD + "steps_of:\n- {kind: long, hour: 2}\n")
    assert "unknown key `steps_of.0.hour`; did you mean `hours`?" in told
    told = problem(good, GOOD + "named:\n  a: {group_size: 1, temprature: 1.0}\n")
    assert "unknown key `named.a.temprature`; did you mean `temperature`?" in told


def test_a_recipe_cannot_be_changed_after_reading(good: Path) -> None:
    plan = load_recipe(good, Plan)
    with pytest.raises(ValueError, match="frozen"):
        plan.steps = 4


@given(
    st.integers(-LARGEST, LARGEST),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=3),
)
@example(0, 0.0, ["a\x85b", "\u2028"])
def test_a_dumped_recipe_reads_back_unchanged(steps: int, temperature: float, data: list[str]) -> None:
    import tempfile

    plan = Plan(steps=steps, rollout=Rollout(group_size=1, temperature=temperature), data=tuple(data))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"
        path.write_text(dump_recipe(plan), encoding="utf-8")
        assert load_recipe(path, Plan) == plan


def test_differing_keys_are_dotted_paths() -> None:
    assert differing_keys({"a": 1, "b": {"c": 1, "d": 2}}, {"a": 1, "b": {"c": 3}, "e": 0}) == [
        "b.c",
        "b.d",
        "e",
    ]
    assert differing_keys({"a": [1]}, {"a": [1]}) == []


def test_a_path_beats_a_shipped_name_and_a_typo_gets_a_suggestion(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(str(good), "recipes.rl") == good
    assert find("codev-tiny", "recipes.rl").is_file()
    monkeypatch.chdir(good.parent)
    with pytest.raises(RecipeError, match="did you mean `codev-tiny`"):
        find("codev-tini", "recipes.rl")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("codev", "recipes.rl"),
        ("rl/codev", "recipes.rl"),
        ("sft/codev", "recipes.sft"),
        ("eval/lens", "eval_suites"),
    ],
)
def test_a_shipped_file_is_found_with_and_without_its_kind(name: str, package: str) -> None:
    assert find(name, package).stem == name.split("/")[-1]


def test_a_list_with_a_bad_item_is_not_called_too_short(tmp_path: Path) -> None:
    class Item(Strict):
        size: int

    class Holder(Strict):
        items: tuple[Item, ...] = Field(min_length=1)

    for text, words in (("items: [{size: x}]", "items.0.size"), ("items: []", "give at least 1, not 0")):
        path = tmp_path / "one.yaml"
        path.write_text(text)
        with pytest.raises(RecipeError, match=words) as caught:
            load_recipe(path, Holder, [])
        assert str(caught.value).startswith("1 problem(s)")


def test_a_data_file_in_place_of_a_recipe_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(b"PAR1\x15\x04\xff")
    with pytest.raises(RecipeError, match="is a Parquet file, not a recipe"):
        load_recipe(path, Plan)


def test_problems_are_listed_in_file_order(good: Path) -> None:
    text = problem(good, "data: 3\nrollout:\n  temperature: x\n  group_size: y\nsteps: many\n", "judge=1")
    assert [row.split(":")[1] for row in text.splitlines()[2:]] == ["1", "3", "4", "5"]
    assert text.splitlines()[1].startswith("  --set: `judge`")


def test_a_file_with_another_suffix_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    for name, meant in (("mine.yml", "mine.yaml"), (f"{tmp_path}/mine.yml", f"{tmp_path}/mine.yaml")):
        with pytest.raises(RecipeError, match=f"did you mean `{meant}`"):
            find(name, "recipes.rl")
    with pytest.raises(RecipeError, match="neither a file"):
        find("a\0b/mine.yml", "recipes.rl")
