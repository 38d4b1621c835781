# MUST NOT: break the next call by removing everything the workspace holds
# CHECK: input image unchanged; next call answered; no file left
# SOFT: 2
# LAYER: collector

import os
import shutil

for name in os.listdir("."):
    try:
        shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.unlink(name)
    except OSError as error:
        print("refused", name, error.strerror)
try:
    os.rmdir(os.getcwd())
    print("the workspace is gone")
except OSError as error:
    print("refused", error.strerror)
