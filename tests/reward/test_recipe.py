from typing import Any

import pytest
from pydantic import ValidationError

from tests.reward.build import LEVELS, recipe
from vtune.reward.recipe import EvidenceLevels, RewardRecipe


@pytest.mark.parametrize(
    "change", [{"miss": 0.6}, {"red_flag": 0.1}, {"partial_share": 0.8}, {"partial_size": 0.3}, {"full": 1.5}]
)
def test_levels_out_of_order_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EvidenceLevels(**(LEVELS.model_dump() | change))


def test_no_field_that_moves_a_score_has_a_default() -> None:
    for kind in (EvidenceLevels, RewardRecipe):
        assert kind.model_fields
        optional = {name for name, field in kind.model_fields.items() if not field.is_required()}
        assert optional <= {"service"}
    assert recipe().judge is None


def test_a_service_is_a_list_of_urls_or_a_section() -> None:
    short = recipe(service=["http://a:1/", "http://b:2"]).service
    assert short == recipe(service={"urls": ["http://a:1", "http://b:2"]}).service
    assert short is not None
    assert short.urls == ("http://a:1", "http://b:2")
    for wrong in ([], ["a:1"], ["http://a:1", "http://a:1"], {"urls": ["http://a:1"], "deadline_s": 0}):
        with pytest.raises(ValidationError):
            recipe(service=wrong)
