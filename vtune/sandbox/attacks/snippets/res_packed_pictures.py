# MUST NOT: return a picture of run lengths that is unpacked pixel by pixel, or one that grows when it is decoded
# CHECK: host memory flat; next call answered
# SOFT: 4
# LAYER: collector

import io
import struct

side = 4900
body = (b"\x01\x00" * side + b"\0\0") * side
palette = bytes(range(256)) * 4
head = struct.pack("<2sIHHI", b"BM", 54 + len(palette) + len(body), 0, 0, 54 + len(palette))
information = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(body), 0, 0, 256, 0)
open("runs.bmp", "wb").write(head + information + palette + body)
# An 8 x 8 screen, and a first frame that is far larger.
screen = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0x80, 0, 0) + bytes(6)
frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 60_000, 60_000, 0) + b"\x02\x02\x4c\x01\x00\x3b"
open("grows.gif", "wb").write(screen + frame)
# Two headers, the first of them harmless.
file = io.BytesIO()
Image.new("L", (8, 8)).save(file, "PNG")
content = file.getvalue()
second = content[8:16] + struct.pack(">II", 30_000, 30_000) + content[24:33]
open("heads.png", "wb").write(content[:33] + second + content[33:])
open("heads.webp", "wb").write(
    b"RIFF" + struct.pack("<I", 30) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + b"\xff\x3f\x00\xff\x3f\x00" + bytes(8)
)
print("made")
