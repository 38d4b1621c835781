# MUST NOT: move the output's position back, or make writes go to its end
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: seals

import fcntl
import os

print("first words")
os.lseek(1, 0, os.SEEK_SET)
for step in (
    lambda: fcntl.fcntl(1, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK),
    lambda: os.write(1, b"x" * 10),
    lambda: fcntl.fcntl(10, fcntl.F_SETFL, os.O_NONBLOCK),
):
    try:
        print("returned", step())
    except OSError as error:
        print("refused", error.strerror)
