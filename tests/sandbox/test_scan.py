"""The static scan: what it reports, and the honest code that it must leave alone."""

import ast

import pytest

from vtune.sandbox.scan import CALLS, MODULES, ROOTS, SUBMODULES, Scanner

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
]


@pytest.mark.parametrize(("code", "name"), DANGEROUS.items())
def test_dangerous_code_is_named(code: str, name: str) -> None:
    assert Scanner().scan(code, ast.parse(code)) == [name]


@pytest.mark.parametrize("code", HONEST)
def test_honest_code_passes(code: str) -> None:
    assert Scanner().scan(code, ast.parse(code)) == []


def test_several_dangers_are_all_named() -> None:
    code = "os.remove('a')\nos.rename('a', 'b')"
    assert Scanner().scan(code, ast.parse(code)) == ["os.remove", "os.rename"]


def test_a_closer_look_is_not_spared_where_a_word_is_spelt_in_other_letters() -> None:
    code = "\uff4f\uff53.remove('a')"  # the parser reads it as os.remove
    assert Scanner().scan(code, ast.parse(code)) == ["os.remove"]


def test_an_alias_of_an_earlier_call_leads_to_a_closer_look() -> None:
    scanner = Scanner()
    for code in ("import os as o", "files = o", "x = 1"):
        assert scanner.scan(code, ast.parse(code)) == []
    assert scanner.scan("files.remove('a')", ast.parse("files.remove('a')")) == ["os.remove"]


@pytest.mark.parametrize("name", sorted(CALLS | MODULES | SUBMODULES))
def test_whatever_is_refused_begins_with_a_word_that_leads_to_a_closer_look(name: str) -> None:
    assert name.partition(".")[0] in ROOTS
