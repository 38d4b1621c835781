# MUST NOT: read another session, the fork server or the trainer through what /proc says of them
# CHECK: refused; another session works
# SOFT: 2
# LAYER: landlock

import os

LEAVES = ("root/etc/passwd", "cwd/mine.txt", "environ", "mem", "maps", "fd/10", "fdinfo/10", "ns/user", "stack", "io")
paths = [
    f"/proc/{pid}/{leaf}"
    for pid in ("{{SIBLING_PID}}", "{{ZYGOTE_PID}}", "{{TRAINER_PID}}", "{{VICTIM_PID}}")
    for leaf in LEAVES
]
paths += ["{{SIBLING_WORKSPACE}}/mine.txt", "{{ROOT}}", "/proc/self/cwd/../../", "/proc/thread-self/root/{{ROOT}}"]
for path in paths:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        print("refused", error.strerror)
    else:
        print("DONE", path, descriptor)
