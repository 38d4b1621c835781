"""Can code change nothing except its session's names, files and answers?

Most of the code that models write crops, enlarges and saves pictures. If a process has run nothing else, it
can serve another trajectory once it has dropped the names and files of the last one: it is forked and
confined once, while a fork per session would cost a fork, an exit and two thousand page faults.

The decision rests on syntax alone, and everything that is not listed here is not contained: functions are
called only by listed names, which cannot be assigned to, and no value in the code can be a function, a
module or anything else that sessions share. The process is confined all the same.
"""

import ast
import builtins
import functools
from collections.abc import Mapping

from vtune.sandbox.repair import parse

IMPORTS = frozenset(
    {
        "import cv2",
        "import math",
        "import matplotlib.pyplot as plt",
        "import numpy",
        "import numpy as np",
        "import os",
        "import random",
        "from PIL import Image",
        "from PIL import ImageDraw",
        "from PIL import ImageEnhance",
        "from PIL import ImageFilter",
        "from PIL import ImageOps",
    }
)
"""Imports of what every session already has under these names."""
FUNCTIONS = (
    "abs all any bool dict display enumerate float int len list max min print range reversed round set "
    "sorted str sum tuple zip"
)
METHODS = (
    "append astype convert copy crop ellipse endswith enhance extend filter items join keys line lower mean "
    "paste polygon rectangle replace reshape resize rotate save show split startswith strip text thumbnail "
    "tolist transpose upper values"
)
"""Methods of pictures, drawing objects, arrays, texts and containers."""
ATTRIBUTES = "dtype height mode ndim shape size width"
"""None of them is a method of any type: `format` is one of texts, and would yield a function as a value."""
KEYWORDS = (
    "a_max a_min alpha axis base beta border borderType bottom box center centering code color colors "
    "copy cutoff default dsize dtype end expand filename fill fillcolor flags flipCode flush fontFace "
    "fontScale format fx fy height high image img interpolation keepdims ksize left lineType lossless low "
    "mask method mode ndigits optimize org outline percent progressive pt1 pt2 quality radius ratio rec "
    "reducing_gap resample reverse right rotateCode sep shape shift sigmaX sigmaY size spacing src start "
    "stop strict stroke_fill stroke_width subsampling text thickness threshold title top translate value "
    "width xy"
)
"""Keywords of calls. Others would have a function call its argument (`key`), skip a check that keeps memory
safe (`refcheck`), or put arbitrary bytes into a picture that the trainer decodes (`exif`, `extra`)."""
OF_MODULES = {
    "Image": "fromarray new open",
    "ImageDraw": "Draw",
    "ImageEnhance": "Brightness Color Contrast Sharpness",
    "ImageFilter": "GaussianBlur MedianFilter UnsharpMask",
    "ImageOps": "autocontrast equalize expand fit flip grayscale invert mirror pad scale",
    "cv2": "GaussianBlur convertScaleAbs copyMakeBorder cvtColor equalizeHist flip imread imwrite putText "
    "rectangle resize rotate",
    "math": "ceil floor sqrt",
    "np": "array asarray clip concatenate hstack mean ones uint8 vstack zeros",
    "os.path": "abspath basename dirname exists join splitext",
    "random": "choice randint random uniform",
}
"""Functions of modules. None keeps state between two calls."""
CONSTANTS = {
    "Image": "BICUBIC BILINEAR BOX FLIP_LEFT_RIGHT FLIP_TOP_BOTTOM HAMMING LANCZOS NEAREST ROTATE_180 "
    "ROTATE_270 ROTATE_90",
    "Image.Resampling": "BICUBIC BILINEAR BOX HAMMING LANCZOS NEAREST",
    "ImageFilter": "BLUR CONTOUR DETAIL EDGE_ENHANCE EDGE_ENHANCE_MORE SHARPEN SMOOTH SMOOTH_MORE",
    "cv2": "BORDER_CONSTANT BORDER_REPLICATE COLOR_BGR2GRAY COLOR_BGR2RGB COLOR_GRAY2BGR COLOR_GRAY2RGB "
    "COLOR_RGB2BGR COLOR_RGB2GRAY FONT_HERSHEY_SIMPLEX INTER_AREA INTER_CUBIC INTER_LANCZOS4 INTER_LINEAR "
    "INTER_NEAREST ROTATE_180 ROTATE_90_CLOCKWISE ROTATE_90_COUNTERCLOCKWISE",
    "math": "pi",
    "np": "float32 uint8",
}
SYNTAX = (
    "Assign AugAssign BinOp BoolOp Break Compare Constant Continue Dict Expr For FormattedValue If IfExp "
    "JoinedStr List ListComp Module Pass Slice Try Tuple UnaryOp alias comprehension"
)
"""Kinds of syntax that are contained if their parts are; so are all operators."""
SESSION = "Image ImageDraw ImageEnhance ImageFilter ImageOps cv2 display math np numpy os plt random"
"""Modules and functions that a session starts with, under these names."""


def _dotted(names: Mapping[str, str]) -> frozenset[str]:
    return frozenset(f"{module}.{name}" for module, words in names.items() for name in words.split())


_CALLED, _METHODS, _ATTRIBUTES, _KEYWORDS = (
    frozenset(words.split()) for words in (FUNCTIONS, METHODS, ATTRIBUTES, KEYWORDS)
)
_OF_MODULES, _CONSTANTS = _dotted(OF_MODULES), _dotted(CONSTANTS)
_SHARED = frozenset((*SESSION.split(), *dir(builtins)))
"""Names for things that sessions share: they are never used as values or assigned to."""
_ERRORS = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
)
_GROUPS = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
_PLAIN = frozenset(getattr(ast, name) for name in SYNTAX.split()) | frozenset(
    kind for group in _GROUPS for kind in group.__subclasses__()
)


@functools.lru_cache(maxsize=256)
def is_contained(source: str) -> bool:
    """Whether a process that has run only this and other contained code is as good as new afterwards.

    This says nothing about code that ends with an error.

    Args:
        source: As a session runs it. Anything that is not valid Python is not contained.
    """
    # With escapes other than these two, strings and bytes could hold anything, including those names.
    if "__" in source or "\\" in source.replace("\\n", "").replace("\\t", ""):
        return False
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    named: set[int] = set()
    return all(type(node) in _PLAIN or id(node) in named or _allows(node, named) for node in ast.walk(tree))


def _allows(node: ast.AST, named: set[int]) -> bool:
    """Whether a piece of syntax that is not plain is contained if its parts are.

    Args:
        node: The piece; the nodes around it have already been checked.
        named: Ids of nodes that are parts of listed names; those of this piece are added.
    """
    match node:
        case ast.Call(func=ast.Name(name) as function):
            named.add(id(function))
            return name in _CALLED
        case ast.Call(func=ast.Attribute(attr=name) as function):
            named.add(id(function))
            return _is_listed(function, _OF_MODULES, named) or name in _METHODS
        case ast.Attribute(attr=name, ctx=ast.Load()):
            return _is_listed(node, _CONSTANTS, named) or name in _ATTRIBUTES
        case ast.Subscript(ctx=ast.Load()):
            return True
        case ast.Name(name):
            return name not in _SHARED and not name.startswith("_")
        case ast.ExceptHandler(type=ast.Name(kind) as caught, name=name):
            # Never the exceptions that end a call at its limit.
            named.add(id(caught))
            return kind in _ERRORS and name not in _SHARED and not (name or "").startswith("_")
        case ast.keyword(arg=name):
            return name in _KEYWORDS
        case ast.Import(names=names):
            return all(f"import {ast.unparse(name)}" in IMPORTS for name in names)
        case ast.ImportFrom(module=module, names=names, level=0):
            return all(f"from {module} import {ast.unparse(name)}" in IMPORTS for name in names)
    return False


def _is_listed(node: ast.Attribute, names: frozenset[str], named: set[int]) -> bool:
    """Whether an attribute belongs to a module and is listed; if so, its parts are added to `named`."""
    parts: list[ast.expr] = [node]
    words = [node.attr]
    while isinstance(parts[-1], ast.Attribute):
        parts.append(parts[-1].value)
        words.append(getattr(parts[-1], "attr", getattr(parts[-1], "id", "")))
    listed = ".".join(reversed(words)) in names
    if listed:
        named.update(map(id, parts))
    return listed
