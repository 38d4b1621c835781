"""What is changed in a model's code before it runs."""

import ast
import time

from vtune.sandbox.guest.rewrite import rewrite


def test_new_nodes_stand_where_the_old_ones_stood() -> None:
    tree = ast.parse("x = 1\ny = a[b:\n  c, :][d, 0]['image_0.png']")
    rewrite(tree, ("image_0.png",))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            assert node.end_lineno is not None
            assert 1 <= node.lineno <= node.end_lineno <= 3
    compile(tree, "<code>", "exec")


def test_twice_the_slices_take_about_twice_the_time() -> None:
    def seconds(slices: int) -> float:
        taken = []
        for _ in range(3):
            tree = ast.parse("x = y" + "[:, :]" * slices)
            began = time.process_time()
            rewrite(tree, ())
            taken.append(time.process_time() - began)
        return min(taken)

    assert seconds(160) < 3 * seconds(80)
