# MUST NOT: write into host files or make new ones
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


for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC):
    attempt(f"open with flags {flags:o}", lambda flags=flags: os.open("{{CANARY}}/victim.txt", flags))
attempt("new file", lambda: os.open("{{CANARY}}/new.txt", os.O_CREAT | os.O_WRONLY, 0o644))
attempt("new folder", lambda: os.mkdir("{{CANARY}}/new"))
attempt("unnamed file", lambda: os.open("{{CANARY}}", os.O_TMPFILE | os.O_WRONLY, 0o600))
