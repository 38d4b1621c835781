# MUST NOT: open sockets of other families
# CHECK: refused
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


families = {
    "netlink": (16, socket.SOCK_RAW),
    "packet": (17, socket.SOCK_RAW),
    "vsock": (40, socket.SOCK_STREAM),
    "alg": (38, socket.SOCK_SEQPACKET),
    "bluetooth": (31, socket.SOCK_RAW),
    "key": (15, socket.SOCK_RAW),
    "can": (29, socket.SOCK_RAW),
    "xdp": (44, socket.SOCK_RAW),
    "tipc": (30, socket.SOCK_DGRAM),
    "qrtr": (42, socket.SOCK_DGRAM),
    "rds": (21, socket.SOCK_SEQPACKET),
}
for name, (family, kind) in families.items():
    attempt(name, lambda family=family, kind=kind: socket.socket(family, kind))
