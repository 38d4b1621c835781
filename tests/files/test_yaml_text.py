"""YAML that is too deep, too large, or expands too far is refused while it is read."""

import time
from typing import Any

import pytest
import yaml

from tests.fuzz.world import YAMLS
from vtune.files.yaml_text import MAX_DEPTH, MAX_PARTS, explained, read_yaml

GOOD = ("list", "scalar", "escapes")
"""Among those documents, the ones that are valid YAML but not a recipe."""


@pytest.mark.parametrize("name", [name for name in YAMLS if name not in GOOD])
def test_a_hostile_document_is_a_yaml_error_at_the_part_limit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    composed, compose = 0, yaml.SafeLoader.compose_node

    def counted(self: yaml.SafeLoader, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        nonlocal composed
        composed += 1
        return compose(self, parent, index)

    monkeypatch.setattr(yaml.SafeLoader, "compose_node", counted)
    began = time.process_time()
    with pytest.raises(yaml.YAMLError):
        read_yaml(YAMLS[name])
    assert composed <= MAX_PARTS
    assert time.process_time() - began < 20  # without the limits each takes minutes or has more parts


def test_aliases_count_as_what_they_expand_to() -> None:
    ten = "a: &a [" + ", ".join("x" * 10) + "]\n"
    assert read_yaml(ten + "b: [*a, *a]\n")[1]["b"] == [["x"] * 10] * 2
    many = ", ".join(["*a"] * (MAX_PARTS // 10))
    with pytest.raises(yaml.YAMLError, match="counting each use of an alias"):
        read_yaml(f"{ten}b: [{many}]\n")


def test_an_alias_within_itself_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="stands for a value that contains it"):
        read_yaml("a: &a [*a]\n")


def test_a_document_at_the_depth_limit_is_read() -> None:
    assert read_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH)[1] is not None
    with pytest.raises(yaml.YAMLError, match="nested more deeply"):
        read_yaml("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("text", "value"), [("010", "8"), ("-012", "-10"), ("1:30", "90"), ("1:30.5", "90.5")]
)
def test_a_number_in_an_unintended_base_is_refused(text: str, value: str) -> None:
    with pytest.raises(yaml.YAMLError, match=f"YAML reads {text} as {value}"):
        read_yaml(f"seeds: [{text}]\n")


def test_texts_and_numbers_that_only_look_like_other_bases_are_read() -> None:
    text = "a: '010'\nb: 0\nc: -0\nd: 00.5\ne: 08\nf: 0x1f\ng: 1_000\nh: a:1\ni: 0.10\n"
    assert read_yaml(text)[1] == yaml.safe_load(text)


def test_ordinary_values_are_read_as_usual() -> None:
    text = "a: 1\nb: 1.0e-6\nc: [x, null, true]\nd: {<<: {e: 2}}\nf: .inf\ng: 2001-01-02\n"
    assert read_yaml(text)[1] == yaml.safe_load(text)
    assert read_yaml("") == (None, None)


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("a: !!python/tuple [1]", "it has the unknown tag", "without tags"),
        ("? [a]\n: b", "a key is a list or a mapping", "without tags"),
        ("a: 2001-99-99", "a value cannot be read: month", "in quotes"),
        ("a: 1:30", "YAML reads 1:30 as 90", "the number that you mean"),
        ("a: [", "not YAML: while parsing a flow node", "its brackets"),
    ],
)
def test_the_fix_matches_the_problem(text: str, what: str, fix: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        read_yaml(text)
    said = explained(caught.value, "check its brackets")
    assert what in said[0]
    assert fix in said[1]
