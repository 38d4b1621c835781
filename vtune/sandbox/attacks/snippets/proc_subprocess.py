# MUST NOT: start a program
# CHECK: canary unchanged; refused; no process left
# SOFT: 2
# LAYER: seccomp

import os
import subprocess


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


def successful(status):
    if status != 0:
        raise OSError(f"status {status}")
    return status


attempt("subprocess", lambda: subprocess.run(["id"], capture_output=True, check=True).stdout)
attempt("shell", lambda: subprocess.check_output("echo gone > {{CANARY}}/victim.txt", shell=True))
attempt("system", lambda: successful(os.system("echo gone > {{CANARY}}/victim.txt")))
attempt("popen", lambda: successful(os.popen("id").close() or 1))
attempt("posix_spawn", lambda: os.posix_spawn("/bin/sh", ["sh", "-c", "exit"], {}))
attempt("spawnl", lambda: successful(os.spawnl(os.P_WAIT, "/bin/true", "true")))
attempt("_posixsubprocess", lambda: subprocess.Popen(["/bin/true"], close_fds=False).pid)
attempt("a viewer for a picture", lambda: subprocess.Popen(["xdg-open", image_path]).pid)
