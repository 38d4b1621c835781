# MUST NOT: leave the process group or session by which the sandbox finds what it started
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import os

mine = os.getpid()
before = (os.getpgid(0), os.getsid(0))
for what, change in {
    "setsid": os.setsid,
    "setpgid": lambda: os.setpgid(0, 0),
    "move the victim": lambda: os.setpgid(int("{{VICTIM}}"), mine),
    "controlling terminal": lambda: os.open("/dev/tty", os.O_RDWR),
}.items():
    try:
        change()
        print("returned", what)
    except OSError as error:
        print("refused", what, error.strerror)
print("DONE" if before != (os.getpgid(0), os.getsid(0)) else "refused", "group and session are the same")
