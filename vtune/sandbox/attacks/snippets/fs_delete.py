# MUST NOT: delete host files or folders
# CHECK: canary unchanged; refused
# SOFT: 2
# LAYER: landlock

import os
import pathlib
import shutil


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


attempt("os.remove", lambda: os.remove("{{CANARY}}/victim.txt"))
attempt("pathlib", lambda: pathlib.Path("{{CANARY}}/secret.txt").unlink())
attempt("rmdir by descriptor", lambda: os.unlink("victim.txt", dir_fd=os.open("{{CANARY}}", os.O_PATH)))
attempt("rmtree", lambda: shutil.rmtree("{{CANARY}}"))
