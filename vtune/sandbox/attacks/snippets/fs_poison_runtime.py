# MUST NOT: change the Python that other sessions run
# CHECK: runtime unchanged; refused
# SOFT: 2
# LAYER: landlock

import json
import os
import sys

import PIL


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


packages = os.path.dirname(os.path.dirname(np.__file__))


def plant():
    path = packages + "/vt_{{TOKEN8}}.pth"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)


attempt("a .pth file", plant)
for module in (np, PIL, json, os, sys.modules["cv2"]):
    attempt(module.__name__, lambda module=module: os.open(module.__file__, os.O_WRONLY | os.O_APPEND))
attempt("byte code", lambda: os.open(os.__spec__.cached, os.O_WRONLY))
attempt("the program", lambda: os.open(sys.executable, os.O_WRONLY))
attempt("shared library", lambda: os.open(np._core._multiarray_umath.__file__, os.O_WRONLY))
