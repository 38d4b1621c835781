# MUST NOT: read host files
# CHECK: token absent; refused
# SOFT: 2
# LAYER: landlock

import mmap
import os


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


attempt("open", lambda: os.read(os.open("{{CANARY}}/secret.txt", os.O_RDONLY), 100))
attempt("builtin open", lambda: open("{{CANARY}}/secret.txt").read())
attempt("picture", lambda: len(open("{{CANARY}}/secret.png", "rb").read()))
attempt("map", lambda: mmap.mmap(os.open("{{CANARY}}/secret.txt", os.O_RDONLY), 0, prot=mmap.PROT_READ)[:])
attempt("by folder", lambda: os.open("secret.txt", os.O_RDONLY, dir_fd=os.open("{{CANARY}}", os.O_PATH)))
attempt("as code", lambda: exec(compile(open("{{CANARY}}/secret.txt").read(), "secret", "exec")))
