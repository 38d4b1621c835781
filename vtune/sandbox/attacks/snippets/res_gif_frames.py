# MUST NOT: make the trainer count or decode a film of endless frames
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: collector

import struct

head = b"GIF89a" + struct.pack("<HHBBB", 60_000, 60_000, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
loop = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"
frame = (
    b"\x21\xf9\x04\0\0\0\0\0"
    + b"\x2c"
    + struct.pack("<HHHHB", 0, 0, 60_000, 60_000, 0)
    + b"\x02\x02\x4c\x01\0"
)
open("film.gif", "wb").write(head + loop + frame * 100_000 + b"\x3b")
small = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
still = b"\x2c" + struct.pack("<HHHHB", 0, 0, 8, 8, 0) + b"\x02\x02\x4c\x01\0"
open("long.gif", "wb").write(small + still * 500_000 + b"\x3b")
print("films")
