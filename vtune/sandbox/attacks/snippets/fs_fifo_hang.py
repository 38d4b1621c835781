# MUST NOT: hang the collector with a pipe, a socket or a device named like a picture
# CHECK: refused; next call answered
# SOFT: 2
# LAYER: seccomp

import os
import socket
import stat


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


def bind():
    socket.socket(socket.AF_UNIX).bind("bound.png")


attempt("fifo", lambda: os.mkfifo("pipe.png"))
attempt("fifo by mknod", lambda: os.mknod("pipe2.png", 0o644 | stat.S_IFIFO))
attempt("character device", lambda: os.mknod("zero.png", 0o644 | stat.S_IFCHR, os.makedev(1, 5)))
attempt("block device", lambda: os.mknod("disk.png", 0o644 | stat.S_IFBLK, os.makedev(8, 0)))
attempt("socket node", lambda: os.mknod("socket.png", 0o644 | stat.S_IFSOCK))
attempt("bound socket", bind)
