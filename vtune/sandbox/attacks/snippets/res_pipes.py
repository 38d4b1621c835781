# MUST NOT: hold kernel memory in pipes and socket pairs
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: rlimits

import fcntl
import os
import socket

held = []
try:
    while len(held) < 5000:
        here, there = os.pipe()
        held.append((here, there))
        try:
            fcntl.fcntl(there, 1031, 1 << 20)
        except OSError:
            pass
        os.set_blocking(there, False)
        os.write(there, bytes(1 << 16))
except OSError as error:
    print("refused after", len(held), error.strerror)
for here, there in held[-4:]:
    os.close(here), os.close(there)
try:
    pairs = [socket.socketpair() for _ in range(5000)]
    print("DONE 5000 pairs")
except OSError as error:
    print("refused", error.strerror)
