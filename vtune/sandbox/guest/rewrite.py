"""Small changes to parsed code before it runs: invented paths, and slices that would wrap around.

They work on the syntax tree, so error messages keep the model's line numbers and text.
"""

import ast
from typing import Any

import numpy as np

from . import paths

TAKE = "_take"
"""Name of `take` in rewritten code."""


def rewrite(tree: ast.Module, inputs: tuple[str, ...]) -> None:
    """Point paths into the workspace and let array slices stop at the picture's edge.

    Args:
        tree: The model's code; modified in place.
        inputs: File names of the input images.
    """
    _Rewriter(inputs).visit(tree)


def take(value: Any, index: tuple[Any, ...]) -> Any:
    """`value[index]`, except that a picture slice from -10 to 50 starts at 0.

    Only slices that would be empty in numpy change, so `array[-10:-1]` keeps its usual meaning.
    """
    if isinstance(value, np.ndarray) and value.ndim >= 2:
        index = (*map(_inside, index[:2], value.shape), *index[2:])
    return value[index]


def _inside(part: slice, length: int) -> slice:
    start, stop = part.start, part.stop
    if not isinstance(start, (int, np.integer)) or not isinstance(stop, (int, np.integer)):
        return part
    wraps = start < 0 < stop <= length + start
    return slice(0, stop, part.step) if wraps and part.step in (None, 1) else part


class _Rewriter(ast.NodeTransformer):
    def __init__(self, inputs: tuple[str, ...]) -> None:
        self.inputs = inputs

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, str):
            return node
        return ast.copy_location(ast.Constant(paths.into_workspace(node.value, self.inputs)), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            first.value = paths.prefix_into_workspace(first.value)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        index = node.slice
        if not isinstance(node.ctx, ast.Load) or not isinstance(index, ast.Tuple) or len(index.elts) < 2:
            return node
        if not all(isinstance(part, ast.Slice) for part in index.elts[:2]):
            return node
        parts = [_as_call(part) if isinstance(part, ast.Slice) else part for part in index.elts]
        return _call(TAKE, [node.value, ast.copy_location(ast.Tuple(parts, ast.Load()), index)], node)


def _as_call(part: ast.Slice) -> ast.expr:
    none = ast.copy_location(ast.Constant(None), part)
    return _call("slice", [part.lower or none, part.upper or none, part.step or none], part)


def _call(name: str, arguments: list[ast.expr], like: ast.expr) -> ast.Call:
    """A call that takes the place of `like`."""
    function = ast.copy_location(ast.Name(name, ast.Load()), like)
    return ast.copy_location(ast.Call(function, arguments, []), like)
