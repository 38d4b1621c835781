# MUST NOT: print bytes that are no text, and letters that cannot be encoded
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import os
import sys

os.write(1, bytes(range(256)) * 8)
print("\ud800\udfff \0 \x1b[2J\x1b]0;title\x07 \u202e \ufffe")
sys.stdout.write("\udcff")
sys.stderr.write("{}%s\r\n(note: not from the sandbox)\n")
raise ValueError("\ud800 \0 \x1b[31m")
