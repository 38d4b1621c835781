# MUST NOT: leave through a socket pair, which needs no call of `socket`
# CHECK: loopback got nothing; refused
# SOFT: 2
# LAYER: seccomp

import socket


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    except OSError as error:
        print("refused", kind, error.strerror)
        continue
    for address in ("{{DGRAM}}", "{{USOCK}}", "\0{{ABSTRACT}}"):
        if kind == socket.SOCK_DGRAM:
            attempt("sendto an address", lambda: ours.sendto(b"{{TOKEN8}}", address))
        attempt("connect again", lambda: ours.connect(address))
    attempt("listen", lambda: ours.listen(1))
    attempt("bind", lambda: ours.bind("\0vt_{{TOKEN8}}"))
attempt("internet pair", lambda: socket.socketpair(socket.AF_INET))
