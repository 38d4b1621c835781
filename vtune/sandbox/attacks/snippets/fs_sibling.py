# MUST NOT: read or change another session's workspace
# CHECK: sibling unchanged; refused
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


attempt("list", lambda: os.listdir("{{SIBWS}}"))
attempt("write", lambda: os.open("{{SIBWS}}/planted.txt", os.O_CREAT | os.O_WRONLY))
attempt("folder", lambda: os.mkdir("{{SIBWS}}/planted"))
attempt("its input", lambda: os.open("{{SIBWS}}/../in/image_0.png", os.O_RDONLY))
attempt("enter", lambda: (os.chdir("{{SIBWS}}"), os.listdir("."))[1])
attempt("all sessions", lambda: os.listdir("{{ROOT}}"))
