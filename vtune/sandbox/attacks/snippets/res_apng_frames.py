# MUST NOT: claim two thousand million frames
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: collector

import struct
import zlib


def chunk(kind, content):
    return struct.pack("!I", len(content)) + kind + content + struct.pack("!I", zlib.crc32(kind + content))


head = chunk(b"IHDR", struct.pack("!IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
control = chunk(b"acTL", struct.pack("!II", 2**31 - 1, 0))
body = chunk(b"IDAT", zlib.compress((b"\0" + bytes(24)) * 8))
frames = b"".join(
    chunk(b"fcTL", struct.pack("!IIIIIHHBB", 2 * n, 2**30, 2**30, 2**30, 2**30, 1, 0, 3, 3))
    for n in range(5000)
)
open("film.png", "wb").write(b"\x89PNG\r\n\x1a\n" + head + control + body + frames + chunk(b"IEND", b""))
print("made")
