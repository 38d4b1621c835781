# MUST NOT: send UDP or ask a name server
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


port = int("{{PORT}}")
udp = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # noqa: E731
attempt("sendto", lambda: udp().sendto(b"{{TOKEN8}}", ("127.0.0.1", port)))
attempt("broadcast", lambda: udp().sendto(b"{{TOKEN8}}", ("255.255.255.255", port)))
attempt("name", lambda: socket.getaddrinfo("example.invalid", 80))
attempt("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
