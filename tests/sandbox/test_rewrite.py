"""Changes to a model's code before it runs."""

import ast
from collections.abc import Callable

from tests.growth import growth
from vtune.sandbox.guest.rewrite import rewrite


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
