# MUST NOT: hold kernel memory in events, watches and locks
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: rlimits

import fcntl
import os
import select

held = []
try:
    while len(held) < 2000:
        held.append(select.epoll())
except OSError as error:
    print("refused after", len(held), error.strerror)
held.clear()
descriptor = os.open("locks", os.O_RDWR | os.O_CREAT)
for place in range(0, 4000, 2):
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, place)
    except OSError as error:
        print("refused", error.strerror)
        break
