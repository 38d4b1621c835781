# MUST NOT: end or stop the trainer, the fork server or another session
# CHECK: victim, zygote, broker and sibling alive; refused
# SOFT: 2
# LAYER: seccomp

import os
import signal


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


mine = os.getpid()
for name, pid in {"victim": int("{{VICTIM}}"), "sibling": int("{{SIBPID}}")}.items():
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, 0):
        if pid != mine:
            attempt(f"{name} {int(number)}", lambda pid=pid, number=number: os.kill(pid, number))
# Signal 0 only tests permission: the attack must survive its own success.
for name, pid in {
    "zygote": int("{{ZYG}}"),
    "broker": int("{{BROKER}}"),
    "parent": os.getppid(),
    "init": 1,
}.items():
    if pid != mine:
        attempt(name, lambda pid=pid: os.kill(pid, 0))
attempt("every process", lambda: os.kill(-1, 0))
attempt("own group", lambda: os.kill(0, 0))
attempt("group of the parent", lambda: os.killpg(os.getpgid(os.getppid()), 0))
