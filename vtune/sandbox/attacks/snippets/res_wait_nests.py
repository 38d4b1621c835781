# MUST NOT: leave nests of waits and full pipes that make its end slow
# CHECK: next call answered; fork server lives
# SOFT: 2
# LAYER: rlimits

import os
import select

nests = [select.epoll()]
try:
    while True:
        nest = select.epoll()
        nest.register(nests[-1].fileno(), select.EPOLLIN)
        nests.append(nest)
except OSError as error:
    print("refused", len(nests), error.strerror)
nests = nests[:10]
here, there = os.pipe()
os.set_blocking(there, False)
try:
    while True:
        os.write(there, bytes(1 << 16))
except BlockingIOError as error:
    print("refused", error.strerror)
