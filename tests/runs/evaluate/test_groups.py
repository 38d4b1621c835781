"""Groups: what a paper reports together, as far as there are suites of it."""

from vtune.config import find, load_recipe, shipped
from vtune.runs.evaluate.groups import GROUPS, SUITES, Group
from vtune.runs.evaluate.published import published_rows

SHIPPED = {name: load_recipe(find(name, GROUPS), Group) for name in shipped(GROUPS)}


def test_every_member_ships_and_nothing_that_ships_is_without_a_suite() -> None:
    assert len(SHIPPED) > 3
    suites = set(shipped(SUITES))
    assert {one for group in SHIPPED.values() for one in group.members} <= suites
    assert {one for group in SHIPPED.values() for one in group.without_suite} & suites == set()


def test_a_group_has_every_suite_of_which_its_table_is_published() -> None:
    rows = published_rows()
    assert len(rows) > 50
    for _, suite, name in rows.values():
        assert any(suite in group.members for group in SHIPPED.values()), f"{suite} of {name}"
    assert SHIPPED["orsta-table3"].average is None  # the paper prints none
