"""Every part of ours, by the contract that `vtune parts check` holds a user's own to.

The cases are the table itself: a new part is tested without a line here. Whatever it needs for this (rows, a
folder with an index, a model's replies) it brings itself, as a user's own part does.
"""

import pytest

from vtune.data.formats.table import written
from vtune.parts import OURS, Kind
from vtune.runs.parts.parts import contract_of

UNTRIED = "a model decides"
"""Result of a check that was not run, because the part does not say what a model would reply."""


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, parts in OURS.items() for name in parts])
def test_a_part_of_ours_keeps_what_one_of_a_users_promises(kind: Kind, name: str) -> None:
    checks = contract_of(kind)(name)
    assert checks
    assert [check for check in checks if not check.ok] == []
    assert [check for check in checks if check.found.startswith(UNTRIED)] == []
    exported = [check.found for check in checks if check.name == "what is exported comes back"]
    assert len(exported) == (kind == "format" and name in written())
    assert all(found.endswith(", 0 refused") for found in exported), "ours hold all that a record may say"
