# MUST NOT: leave the workspace by dots
# CHECK: nothing new beside the workspace; refused
# SOFT: 2
# LAYER: landlock

import os


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


for depth in range(1, 6):
    up = "../" * depth
    attempt(up + "file", lambda up=up: os.open(f"{up}escape_{{TOKEN8}}.txt", os.O_CREAT | os.O_WRONLY))
    attempt(up + "folder", lambda up=up: os.mkdir(f"{up}escape_{{TOKEN8}}"))
os.mkdir("a")
attempt("through a folder", lambda: os.open("a/../../escape_{{TOKEN8}}.txt", os.O_CREAT | os.O_WRONLY))
attempt("after chdir", lambda: (os.chdir(".."), os.open("escape_{{TOKEN8}}.txt", os.O_CREAT | os.O_WRONLY)))
