# MUST NOT: make every later file of the session unreadable to the trainer
# CHECK: no file left; next call answered
# SOFT: 2
# LAYER: collector

import os

os.umask(0o777)
for name in ("first.png", "second.txt"):
    with open(name, "wb") as file:
        file.write(open(image_path, "rb").read())
print("umask", oct(os.umask(0o777)))
