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


def test_no_field_has_a_default() -> None:
    for kind in (EvidenceLevels, RewardRecipe):
        assert kind.model_fields
        assert all(field.is_required() for field in kind.model_fields.values())
    assert recipe().judge is None
