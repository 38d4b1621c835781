# MUST NOT: use the folders that the environment names to reach what sessions share
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


for name, folder in dict(os.environ).items():
    if folder.startswith("/") and not os.path.realpath(folder).startswith(os.getcwd()):

        def write(folder=folder):
            path = f"{folder}/vt_{{TOKEN8}}"
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)

        attempt(name, write)
attempt("the sandbox folder", lambda: os.mkdir("{{ROOT}}/vt_{{TOKEN8}}"))
