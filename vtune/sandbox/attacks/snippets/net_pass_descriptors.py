# MUST NOT: push descriptors into the trainer, or past the limit of open files
# CHECK: refused; broker alive
# SOFT: 2
# LAYER: seccomp

import array
import os
import socket


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=os.dup(10))
own = array.array("i", [os.open(os.devnull, os.O_RDONLY)] * 20)
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, own)]
attempt("to the trainer", lambda: channel.sendmsg([b"\0"], rights))
ours, theirs = socket.socketpair()
attempt("to itself", lambda: ours.sendmsg([b"\0"], rights))
attempt("receive", lambda: theirs.recvmsg(10, 1000, socket.MSG_DONTWAIT))
attempt("credentials", lambda: channel.sendmsg([b"\0"], [(socket.SOL_SOCKET, 2, bytes(12))]))
