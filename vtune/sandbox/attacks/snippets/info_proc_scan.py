# MUST NOT: learn about other processes from /proc
# CHECK: token absent; refused
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


for process in ("{{ZYG}}", "{{BROKER}}", "{{SIBPID}}", "{{VICTIM}}", str(os.getppid())):
    if process in ("0", "1", str(os.getpid())):
        continue
    for name in ("environ", "cmdline", "maps", "status", "stat", "mem", "syscall", "stack", "comm"):
        attempt(f"{process} {name}", lambda: open(f"/proc/{process}/{name}", "rb").read(100))
    for name in ("cwd", "root", "exe", "fd", "task", "map_files", "ns"):
        attempt(f"{process} {name}", lambda: os.listdir(f"/proc/{process}/{name}"))
