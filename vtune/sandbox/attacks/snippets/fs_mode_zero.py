# MUST NOT: leave folders that nobody may enter, so that the end cannot remove them
# CHECK: no file left; next call answered
# SOFT: 2
# LAYER: collector

import os

os.mkdir("shut", 0)
os.makedirs("a/b")
os.mkdir("a/b/shut", 0)
os.mkdir("a/readonly", 0o500)
os.umask(0o777)
os.mkdir("masked")
for name in ("masked.png", "a/b/masked.png", "masked.txt"):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0))
os.close(os.open("modeless.png", os.O_CREAT | os.O_WRONLY, 0o644))
image.convert("RGB").resize((8, 8)).save("unreadable.png")
print("left behind")
