# MUST NOT: make the trainer decode a picture of billions of pixels
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: collector

import struct
import zlib


def chunk(kind, content):
    return struct.pack("!I", len(content)) + kind + content + struct.pack("!I", zlib.crc32(kind + content))


packed = zlib.compress(bytes(40_000_000), 9)
for name, width, height in (("wide.png", 200_000, 200_000), ("long.png", 1, 2**31 - 1), ("none.png", 0, 0)):
    head = struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with open(name, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b""))
print("three bombs")
