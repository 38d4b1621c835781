# MUST NOT: escape by moving the folder one stands in, which changes what dots mean
# CHECK: nothing new beside the workspace; canary unchanged; refused
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


os.makedirs("a/b/c")
inner = os.open("a/b/c", os.O_RDONLY)
attempt("move out", lambda: os.rename("a/b", "../b"))
os.rename("a/b", "b")
os.fchdir(inner)
attempt("dots from a moved folder", lambda: os.open("../../../../x_{{TOKEN8}}", os.O_CREAT | os.O_WRONLY))
attempt("secret from a moved folder", lambda: os.open("../../../../../..{{CANARY}}/secret.txt", os.O_RDONLY))
attempt("move a folder upwards", lambda: os.rename(".", "../../../c"))
