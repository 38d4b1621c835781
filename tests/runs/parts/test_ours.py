"""Every built-in part is checked by the contract that `vtune parts check` applies to user parts.

The cases come from the table of parts, so a new part is checked without a line here. A part brings what its
check needs (rows, a folder with an index, replies of a model), like a user's part.
"""

import pytest

from vtune.data.formats.table import written
from vtune.parts import OURS, Kind
from vtune.runs.parts.parts import contract_of

UNTRIED = "a model decides"
"""The message of a check that was skipped because the part does not provide a model's replies."""


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, parts in OURS.items() for name in parts])
def test_every_built_in_part_meets_the_contract_for_user_parts(kind: Kind, name: str) -> None:
    checks = contract_of(kind)(name)
    assert checks
    assert [check for check in checks if not check.ok] == []
    assert [check for check in checks if check.found.startswith(UNTRIED)] == []
    exported = [check.found for check in checks if check.name == "what is exported comes back"]
    assert len(exported) == (kind == "format" and name in written())
    assert all(found.endswith(", 0 refused") for found in exported), "ours hold all that a record may say"
