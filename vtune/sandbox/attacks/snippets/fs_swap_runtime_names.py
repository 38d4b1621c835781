# MUST NOT: hide the libraries that later calls import behind files of the same name
# CHECK: sibling unchanged; next call answered
# SOFT: 2
# LAYER: landlock

import os
import sys

for name in ("json", "struct", "re", "numpy", "cv2", "PIL", "guest", "sitecustomize", "encodings"):
    open(name + ".py", "w").write("raise SystemExit('shadowed')")
    os.makedirs(name, exist_ok=True)
    open(name + "/__init__.py", "w").write("raise SystemExit('shadowed')")
sys.path.insert(0, os.getcwd())
print("planted")
