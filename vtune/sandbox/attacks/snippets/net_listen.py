# MUST NOT: wait for connections
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import asyncio
import socket


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


def listen(family, address):
    with socket.socket(family) as server:
        server.bind(address)
        server.listen(1)


attempt("TCP", lambda: listen(socket.AF_INET, ("127.0.0.1", 0)))
attempt("any address", lambda: listen(socket.AF_INET, ("0.0.0.0", 0)))
attempt("path", lambda: listen(socket.AF_UNIX, "listen.sock"))
attempt("abstract", lambda: listen(socket.AF_UNIX, "\0vt_{{TOKEN8}}"))


async def serve():
    async with await asyncio.start_server(print, "127.0.0.1", 0) as server:
        # If no socket can be created, asyncio returns a server without any.
        return server.sockets[0]


attempt("asyncio", lambda: asyncio.run(serve()))
