from typing import Any

import pytest
from pydantic import ValidationError

from tests.reward.build import LEVELS, STAGED, recipe
from vtune.reward.recipe import EvidenceLevels, IouSchedule, RewardRecipe


@pytest.mark.parametrize(
    "change", [{"miss": 0.6}, {"red_flag": 0.1}, {"partial_share": 0.8}, {"partial_size": 0.3}, {"full": 1.5}]
)
def test_levels_out_of_order_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EvidenceLevels(**(LEVELS.model_dump() | change))


def test_only_keys_newer_than_stored_recipes_have_a_default() -> None:
    for kind in (EvidenceLevels, IouSchedule, RewardRecipe):
        assert kind.model_fields
        optional = {name for name, field in kind.model_fields.items() if not field.is_required()}
        young = {"looks", "legible_side", "most_of_input", "faked", "illegible", "everything"}
        young |= {"judge_reads_output", "judges", "parts", "errs", "counterfactual"}
        assert optional <= {"iou", "format_rule", "service", "consistency"} | young
    assert recipe().judge is None
    assert (recipe().iou, recipe().format_rule) == (None, "ordered")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"thresholds": (0.95, 0.85, 0.99)}, id="falling"),
        pytest.param({"thresholds": (0.85, 0.85, 0.99)}, id="twice"),
        pytest.param({"thresholds": (0.85, 0.95, 1.5)}, id="above 1"),
        pytest.param({"thresholds": ()}, id="none"),
        pytest.param({"until": (0.25, 0.1)}, id="stages that end before they begin"),
        pytest.param({"until": (0.1,)}, id="a stage too many"),
        pytest.param({"until": (0.1, 1.0)}, id="a stage that never comes"),
        pytest.param({"target": 0.5}, id="a target that nobody follows"),
        pytest.param({"schedule": "average"}, id="stages without a course"),
        pytest.param({"schedule": "fixed", "until": ()}, id="fixed at three"),
        pytest.param({"schedule": "adaptive", "until": ()}, id="adaptive without a target"),
        pytest.param({"schedule": "average", "thresholds": (0.5,), "until": ()}, id="average of one"),
    ],
)
def test_a_contradictory_schedule_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        IouSchedule(**(STAGED.model_dump() | change))


def test_a_service_is_a_list_of_urls_or_a_section() -> None:
    short = recipe(service=["http://a:1/", "http://b:2"]).service
    assert short == recipe(service={"urls": ["http://a:1", "http://b:2"]}).service
    assert short is not None
    assert short.urls == ("http://a:1", "http://b:2")
    alone = recipe(service="http://a:1").service
    assert alone == recipe(service=["http://a:1"]).service
    for wrong in (
        [],
        "a:1",
        ["a:1"],
        ["http://a:1", "http://a:1"],
        ["http://a:1", "http://a:1/"],
        {"urls": ["http://a:1"], "deadline_s": 0},
    ):
        with pytest.raises(ValidationError):
            recipe(service=wrong)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://a:99999", "no usable host or port .*range"),
        ("http://a:0", "no usable host or port"),
        ("http://a:b", "no usable host or port"),
        ("http://:80", "no usable host or port"),
        ("http://[::1", "no usable host or port"),
        ("http://a..b", "no usable host or port .*label"),
        (f"http://{'a' * 64}", "no usable host or port .*label"),
        ("http://a:1?x=1", "a query or a fragment"),
        ("http://a:1/#x", "a query or a fragment"),
        ("http://a:1/b c", "a space"),
        ("http://a:1\n", "a space"),
        ("http://a:1/é", "not ASCII"),
        ("http://bücher:1", "not ASCII"),
        ("http://me:secret@a:1", "token_env"),
        ("http://me:secret/@a:1", "token_env"),
    ],
)
def test_an_unusable_service_url_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why) as found:
        recipe(service=[url])
    assert "secret" not in found.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    "url", ["http://a_b:1", "https://a.example./x%20y", "http://[::1]:8192", "http://10.0.0.5"]
)
def test_urls_with_names_and_addresses_are_accepted(url: str) -> None:
    service = recipe(service=[url]).service
    assert service is not None
    assert service.urls == (url,)
