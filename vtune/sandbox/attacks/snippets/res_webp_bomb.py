# MUST NOT: make the trainer decode the largest picture that WEBP knows
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: collector

import struct

# A lossless header of 16384 x 16384 pixels, and an extended one of 16777216 x 16777216.
size = struct.pack("<I", (16383) | (16383 << 14))
lossless = b"\x2f" + size + bytes(40)
body = b"VP8L" + struct.pack("<I", len(lossless)) + lossless
open("lossless.webp", "wb").write(b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body)
extended = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + b"\xff\xff\xff" + b"\xff\xff\xff"
whole = extended + b"ANIM" + struct.pack("<I", 6) + bytes(6) + body
open("extended.webp", "wb").write(b"RIFF" + struct.pack("<I", len(whole) + 4) + b"WEBP" + whole)
try:
    Image.new("L", (16000, 3000)).save("true.webp", lossless=True, method=0)
except (OSError, ValueError, MemoryError) as error:
    print("refused", error)
print("made")
