# MUST NOT: rename host files, or move them in or out of the workspace
# CHECK: canary unchanged; refused
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


open("own.txt", "w").write("mine")
attempt("rename away", lambda: os.rename("{{CANARY}}/victim.txt", "{{CANARY}}/gone.txt"))
attempt("take into the workspace", lambda: os.rename("{{CANARY}}/victim.txt", "taken.txt"))
attempt("put over a host file", lambda: os.replace("own.txt", "{{CANARY}}/victim.txt"))
attempt("rename the folder", lambda: os.rename("{{CANARY}}", "{{CANARY}}-moved"))
