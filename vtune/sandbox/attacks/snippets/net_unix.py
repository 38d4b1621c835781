# MUST NOT: talk to the host's Unix sockets
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


def stream(address):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
        client.sendall(b"{{TOKEN8}}")


def datagram(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(b"{{TOKEN8}}", address)


attempt("stream", lambda: stream("{{USOCK}}"))
attempt("datagram", lambda: datagram("{{DGRAM}}"))
attempt("abstract stream", lambda: stream("\0{{ABSTRACT}}"))
attempt("abstract datagram", lambda: datagram("\0{{ABSTRACT}}"))
