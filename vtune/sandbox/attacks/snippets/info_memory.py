# MUST NOT: find the trainer's secrets in memory that was inherited
# CHECK: token absent
# SOFT: 2
# LAYER: fork server

import ctypes
import gc
import os
import time

LIBC = ctypes.CDLL(None)
mark, page, stop = b"{{TOKEN8}}", 4096, time.monotonic() + 1.0
for thing in gc.get_objects():
    if isinstance(thing, dict):
        for value in list(thing.values()):
            if isinstance(value, (str, bytes)) and "{{TOKEN8}}" in str(value) and len(value) < 200:
                print("object", value)
state = ctypes.create_string_buffer(1)
for start in (id(object()), id(os), id(type), ctypes.addressof(state)):
    base = start & ~(page - 1)
    for step in range(-4096, 4096):
        if time.monotonic() > stop:
            break
        address = base + step * page
        if LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(page), state) == 0 and abs(step) < 64:
            content = ctypes.string_at(address, page)
            at = content.find(mark)
            if at >= 0:
                print("page", content[at : at + 64])
print("searched")
