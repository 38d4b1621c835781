# MUST NOT: leave files in the host's shared folders
# CHECK: nothing new in host folders; refused
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


for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/home", "/root", "/", "/dev/mqueue"):
    path = f"{folder}/vt_{{TOKEN8}}"

    def write(path=path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        os.unlink(path)

    attempt(folder, write)
