"""The static scan: what it reports, and the honest code that it must leave alone."""

import ast
from collections.abc import Callable

import pytest

from tests.growth import growth
from vtune.sandbox.scan import REFUSED, ROOTS, Scanner

DANGEROUS = {
    "import os\nos.remove('x')": "os.remove",
    "os.system('ls')": "os.system",
    "import os as o\no.rename('a', 'b')": "os.rename",
    "from os import remove as r\nr('x')": "os.remove",
    "from os import *\nunlink('x')": "os.unlink",
    "f = os.unlink\nf('x')": "os.unlink",
    "o = os\no.rmdir('x')": "os.rmdir",
    "getattr(os, 'remove')('x')": "os.remove",
    "__import__('os').kill(1, 9)": "os.kill",
    "import importlib\nimportlib.import_module('os').fork()": "os.fork",
    "import shutil\nshutil.rmtree('x')": "shutil.rmtree",
    "import shutil as s\ns.move('a', 'b')": "shutil.move",
    "from pathlib import Path\nPath('x').unlink()": "pathlib.Path().unlink",
    "import pathlib\np = pathlib.Path('x')\np.rename('y')": "pathlib.Path().rename",
    "import subprocess": "subprocess",
    "import subprocess as sp\nsp.run(['ls'])": "subprocess",
    "from subprocess import run": "subprocess",
    "import socket": "socket",
    "import ctypes": "ctypes",
    "import multiprocessing as mp\nmp.Process()": "multiprocessing",
    "import urllib.request": "urllib.request",
    "import signal\nsignal.alarm(0)": "signal",
    "def f():\n    import os\n    os.remove('x')": "os.remove",
    "try:\n    os.chmod('x', 0)\nexcept OSError:\n    pass": "os.chmod",
    "for call in [os.remove]:\n    call('x')": "os.remove",
    "from concurrent import futures\nfutures.process": "concurrent.futures.process",
    "from http.server import HTTPServer": "http",
    "from pathlib import *\nPath('x').unlink()": "pathlib.Path().unlink",
    "a = b = os\nb.remove('x')": "os.remove",
    "o: object = os\no.remove('x')": "os.remove",
    "(f := os.remove)('x')": "os.remove",
    "if (o := os):\n    o.remove('x')": "os.remove",
    "lambda x: os.remove(x)": "os.remove",
    "class A:\n    def f(self):\n        os.remove('x')": "os.remove",
    "@os.system\ndef f(): ...": "os.system",
    "match x:\n    case 1:\n        os.remove('x')": "os.remove",
    "p = 'a'\np = Path\nfrom pathlib import Path\np = Path(p)\np.unlink()": "pathlib.Path().unlink",
    "from pathlib import Path\np = 'a'\nif p:\n    p = Path(p)\n    p.unlink()": "pathlib.Path().unlink",
    "from pathlib import Path\nif a:\n    p = Path(a)\nelse:\n    p = Path(b)\np.rename('x')": (
        "pathlib.Path().rename"
    ),
    "from pathlib import Path\nfor f in a:\n    p = Path(f)\n    p.unlink()": "pathlib.Path().unlink",
    "from pathlib import Path\np = Path('x')\ndef f():\n    p.unlink()": "pathlib.Path().unlink",
    "def f():\n    o.remove('x')\nimport os as o": "os.remove",
    "try:\n    import shutil as s\nexcept ImportError:\n    pass\ns.rmtree('x')": "shutil.rmtree",
}

HONEST = [
    "import re\nre.compile('a').sub('b', 'c')",
    "model.eval()",
    "import sys\nsys.stdout.flush()",
    "Image.eval(image, lambda v: 255 - v)",
    "df = table()\ndf.rename(columns={'a': 'b'}).replace(1, 2)",
    "names = ['a']\nnames.remove('a')\nd = {}\nd.pop('x', None)",
    "'a.png'.replace('.png', '.jpg').removesuffix('x')",
    (
        "import os\nos.path.join('a', 'b')\nos.makedirs('out', exist_ok=True)\n"
        "os.listdir('.')\nos.path.exists('x')"
    ),
    "from os import path\npath.splitext('a.png')",
    "import shutil\nshutil.copy('a.png', 'b.png')",
    (
        "from pathlib import Path\nPath('out').mkdir(exist_ok=True)\n"
        "Path('a.png').exists()\nPath('a').with_suffix('.b')"
    ),
    "eval('1 + 1')\nexec('a = 1')",
    "open('notes.txt', 'w').write('x')",
    "system = 3\nkill = 4\nremove = lambda x: x\nremove(system + kill)",
    "class Tree:\n    def remove(self): ...\n    def unlink(self): ...\nTree().remove()\nTree().unlink()",
    "import cv2\ncv2.imwrite('a.png', cv2.imread(image_path)[10:20, 10:20])",
    "import matplotlib.pyplot as plt\nplt.imshow(image)\nplt.show()",
    "from collections import Counter\nCounter('abc').most_common()",
    "import threading, time, uuid, json, itertools, functools, datetime, statistics",
    "getattr(image, 'size')",
    "print('os.remove and subprocess are words here')  # os.system('x')",
    "import torch.multiprocessing_helpers_none as x",
    "requests = [1]\nrequests.append(2)\nsocket = {}\nsocket.get('a')",
    "getattr(os, name, 'remove')",
    "from .socket import x",
    "for os in ['linux']:\n    os.replace('l', 'L')",
]

TWO_KINDS = {
    "a path made a text": "p = Path(image_path)\np = str(p)\np.replace('.jpg', '_crop.png')",
    "a text made a path": "p = image_path\nout = p.replace('.jpg', '_c.png')\np = Path(out)",
    "a text that is formatted": "out = Path('out.png')\nout = f'{out.stem}'\nout.replace('o', '0')",
    "a name of a loop": "p = Path('x')\nfor p in names:\n    p.replace('a', 'b')",
    "a name behind a loop": "p = Path('x')\nfor p in names:\n    pass\np.replace('a', 'b')",
    "a comprehension": "p = Path('x')\n[p.replace('a', 'b') for p in names]",
    "a parameter": "p = Path('x')\ndef f(p):\n    return p.replace('a', 'b')",
    "a lambda's parameter": "p = Path('x')\nsorted(names, key=lambda p: p.replace('a', 'b'))",
    "a lambda run before": "f = lambda: p.replace('a', 'b')\np = 'x'\nf()\np = Path(p)",
    "a function run before": "def f():\n    return p.replace('a', 'b')\np = 'x'\nf()\np = Path(p)",
    "a function's own name": "def f():\n    p = Path('x')\np.replace('a', 'b')",
    "a class's own name": "p = 'x'\nclass A:\n    p = Path(p)\n    def f(self): p.replace('a', 'b')",
    "one branch": "p = 'x'\nif c:\n    p = Path(p)\np.replace('a', 'b')",
    "two branches": "if c:\n    p = Path('x')\nelif d:\n    p = 'x'\np.replace('a', 'b')",
    "a branch in a branch": "p = 'x'\nif c:\n    if d:\n        p = Path(p)\np.replace('a', 'b')",
    "an attempt": "p = 'x'\ntry:\n    p = Path(p)\nexcept TypeError:\n    pass\np.replace('a', 'b')",
    "a handler's name": (
        "p = Path('x')\ntry:\n    f()\nexcept OSError as p:\n    p = str(p)\n    p.replace('a', 'b')"
    ),
    "a tuple": "p = Path('x')\np, q = 'x', 'y'\np.replace('a', 'b')",
    "a manager": "p = Path('x')\nwith open(p) as p:\n    p.replace('a', 'b')",
    "a pattern": "p = Path('x')\nmatch names:\n    case [p, *_]:\n        p.replace('a', 'b')",
    "a name in an expression": "p = Path('x')\n(p := str(p)) and p.replace('a', 'b')",
    "added to": "p = Path('x')\np += 'x'\np.replace('a', 'b')",
    "a global name": "p = Path('x')\ndef f():\n    global p\n    p = 'x'\nf()\np.replace('a', 'b')",
    "a name defined again": "p = Path('x')\nclass p:\n    replace = str\np.replace('a')",
}


@pytest.mark.parametrize(("code", "name"), DANGEROUS.items())
def test_dangerous_code_is_named(code: str, name: str) -> None:
    assert Scanner().scan(code, ast.parse(code)) == [name]


@pytest.mark.parametrize("code", HONEST)
def test_honest_code_passes(code: str) -> None:
    assert Scanner().scan(code, ast.parse(code)) == []


@pytest.mark.parametrize("what", TWO_KINDS)
def test_a_name_that_may_be_a_text_or_a_path_is_let_through(what: str) -> None:
    code = f"from pathlib import Path\n{TWO_KINDS[what]}"
    assert Scanner().scan(code, ast.parse(code)) == []


def test_several_dangers_are_all_named() -> None:
    code = "os.remove('a')\nos.rename('a', 'b')"
    assert Scanner().scan(code, ast.parse(code)) == ["os.remove", "os.rename"]


def test_a_closer_look_is_not_spared_where_a_word_is_spelt_in_other_letters() -> None:
    code = "\uff4f\uff53.remove('a')"  # the parser reads it as os.remove
    assert Scanner().scan(code, ast.parse(code)) == ["os.remove"]


def scanned(*calls: str) -> list[str]:
    """The names for which the last call of a session is refused; the earlier ones are accepted."""
    scanner = Scanner()
    for code in calls[:-1]:
        assert scanner.scan(code, ast.parse(code)) == []
    return scanner.scan(calls[-1], ast.parse(calls[-1]))


def test_an_alias_of_an_earlier_call_leads_to_a_closer_look() -> None:
    assert scanned("import os as o", "files = o", "x = 1", "files.remove('a')") == ["os.remove"]


PATH = "from pathlib import Path\n"


@pytest.mark.parametrize(
    "calls",
    [
        (f"{PATH}path = Path('.')", "def stem(path):\n    return path.replace('.jpg', '')"),
        (f"{PATH}path = Path('.')", "path = 'a.jpg'", "path.replace('.jpg', '')"),
        (f"{PATH}path = 'a.jpg'", "if c:\n    path = Path(path)\npath.replace('.jpg', '')"),
        ("path = 'a.jpg'", f"{PATH}if c:\n    path = Path(path)\npath.replace('.jpg', '')"),
        (
            "path = 'a.jpg'",
            f"{PATH}def f():\n    return path.replace('.jpg', '')\nf()\npath = Path(path)",
        ),
        (f"{PATH}if c:\n    image_path = Path(image_path)\nimage_path.replace('.jpg', '')",),
    ],
)
def test_what_another_call_made_of_a_name_refuses_no_text(calls: tuple[str, ...]) -> None:
    assert scanned(*calls) == []


def test_a_refused_call_binds_nothing() -> None:
    scanner = Scanner()
    for code, refused in (
        (f"{PATH}path = 'a.jpg'", []),
        ("path = Path(path)\npath.unlink()", ["pathlib.Path().unlink"]),
        ("path.replace('.jpg', '')", []),
    ):
        assert scanner.scan(code, ast.parse(code)) == refused


@pytest.mark.parametrize("link", [".a", "()"])
def test_the_time_for_a_chain_grows_with_its_length_not_with_its_square(link: str) -> None:
    def scan(length: int) -> Callable[[], object]:
        code = f"x = os{link * length}\n" * 10
        tree = ast.parse(code)
        return lambda: Scanner().scan(code, tree)

    assert growth(scan, 100, times=8) < 24


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_whatever_is_refused_begins_with_a_word_that_leads_to_a_closer_look(name: str) -> None:
    assert name.partition(".")[0] in ROOTS


def test_no_refused_name_leads_to_another() -> None:
    assert not [name for name in REFUSED for other in REFUSED if name.startswith((f"{other}.", f"{other}("))]


def test_a_long_chain_of_branches_is_read_without_recursion() -> None:
    code = "if a:\n    pass\n" + "elif b:\n    os.remove('x')\n" * 400
    assert Scanner().scan(code, ast.parse(code)) == ["os.remove"]
