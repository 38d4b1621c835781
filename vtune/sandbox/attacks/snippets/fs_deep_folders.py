# MUST NOT: build a folder so deep that removing it by name fails
# CHECK: no file left; next call answered
# SOFT: 4
# LAYER: quota

import os

depth = 0
try:
    for depth in range(1900):
        os.mkdir("d" * 60)
        os.chdir("d" * 60)
    open("bottom.png", "w").write("deep")
except OSError as error:
    print("refused", error.strerror)
print("depth", depth)
