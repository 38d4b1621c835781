# MUST NOT: open devices
# CHECK: refused
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


for name in (
    "mem",
    "kmsg",
    "port",
    "tty",
    "console",
    "ptmx",
    "kvm",
    "fuse",
    "net/tun",
    "sda",
    "vda",
    "loop0",
    "input/event0",
    "fb0",
    "dri/card0",
    "nvidia0",
    "rtc0",
    "vsock",
    "userfaultfd",
    "loop-control",
):
    attempt(name, lambda name=name: os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK))
for path in (
    "/proc/sysrq-trigger",
    "/proc/self/oom_score_adj",
    "/proc/sys/kernel/core_pattern",
    "/sys/fs/cgroup",
):
    attempt(path, lambda path=path: os.open(path, os.O_WRONLY if "cgroup" not in path else os.O_RDONLY))
