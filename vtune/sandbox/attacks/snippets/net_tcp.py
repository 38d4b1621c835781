# MUST NOT: open a TCP connection
# CHECK: loopback got nothing; refused
# SOFT: 2
# LAYER: seccomp

import http.client
import socket
import urllib.request


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


port = int("{{PORT}}")
attempt("connect", lambda: socket.create_connection(("127.0.0.1", port), 0.3))
attempt("IPv6", lambda: socket.create_connection(("::1", port), 0.3))
attempt("urllib", lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=0.3))
attempt("http.client", lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=0.3).request("GET", "/"))
attempt("bare socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
