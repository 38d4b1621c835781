# MUST NOT: hide the bomb in a picture's comment, profile or text
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: collector

import struct
import zlib


def chunk(kind, content):
    return struct.pack("!I", len(content)) + kind + content + struct.pack("!I", zlib.crc32(kind + content))


bomb = zlib.compress(bytes(200 << 20), 9)
head = chunk(b"IHDR", struct.pack("!IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
body = chunk(b"IDAT", zlib.compress((b"\0" + bytes(24)) * 8))
for name, extra in {
    "text.png": chunk(b"zTXt", b"Comment\0\0" + bomb),
    "profile.png": chunk(b"iCCP", b"icc\0\0" + bomb),
    "international.png": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + bomb) * 4,
}.items():
    open(name, "wb").write(b"\x89PNG\r\n\x1a\n" + head + extra + body + chunk(b"IEND", b""))
print("three bombs of", len(bomb), "bytes")
