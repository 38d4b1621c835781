"""Changes to a model's code before it runs."""

import ast
from collections.abc import Callable

import numpy as np

from tests.growth import growth
from vtune.sandbox.guest.provenance import region_of, track
from vtune.sandbox.guest.regions import Cuts, whole_input
from vtune.sandbox.guest.rewrite import rewrite, take


def test_new_nodes_stand_where_the_old_ones_stood() -> None:
    tree = ast.parse("x = 1\ny = a[b:\n  c, :][d, 0]['image_0.png']")
    rewrite(tree, ("image_0.png",))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            assert node.end_lineno is not None
            assert 1 <= node.lineno <= node.end_lineno <= 3
    compile(tree, "<code>", "exec")


def test_the_time_grows_with_the_slices_not_with_their_square() -> None:
    def prepare(slices: int) -> Callable[[], object]:
        tree = ast.parse("x = y" + "[:, :]" * slices)
        return lambda: rewrite(tree, ())

    assert growth(prepare, 20, times=8) < 24


def test_a_picture_looked_up_in_a_table_is_followed_and_all_else_is_as_python_has_it() -> None:
    region = whole_input(0, (3, 2), Cuts())
    levels = track(np.array([[0, 1, 2], [2, 1, 0]]), region)
    table = np.array([9, 5, 7])
    found = take(table, levels)
    assert (found.tolist(), region_of(found)) == ([[9, 5, 7], [7, 5, 9]], region)
    assert region_of(take(np.eye(3), levels)) == region
    assert region_of(take(table, np.array(levels.tolist()))) is None
    # A picture is not a table, and a mask picks pixels instead of looking them up.
    other = region_of(take(track(np.eye(3), whole_input(1, (3, 3), Cuts())), levels))
    assert other is not None
    assert other.image == 1
    assert take(np.eye(2), track(np.eye(2) > 0, whole_input(0, (2, 2), Cuts()))).tolist() == [1, 1]
    assert (take([4, 5], 1), take({"a": 6}, "a"), take(list, int)) == (5, 6, list[int])
