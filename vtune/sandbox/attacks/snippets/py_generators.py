# MUST NOT: keep generators and coroutines alive that catch their own end
# CHECK: no CPU used between calls; next call answered
# SOFT: 2
# LAYER: freeze

import json
import os
import struct


def send(message):
    body = json.dumps(message).encode()
    os.write(10, struct.pack("!I", len(body)) + body)


def stubborn():
    while True:
        try:
            yield
        except BaseException:
            pass


class Never:
    def __await__(self):
        yield


async def awaiting():
    while True:
        try:
            await Never()
        except BaseException:
            pass


kept = [stubborn() for _ in range(100)]
for generator in kept:
    next(generator)
coroutine = awaiting()
coroutine.send(None)
del kept, generator
