# MUST NOT: have another session import a module of one's own
# CHECK: sibling unchanged; next call answered; refused
# SOFT: 2
# LAYER: landlock

import importlib
import sys

for name in ("json", "scipy", "pandas", "colorsys", "matplotlib"):
    open(name + ".py", "w").write("EVIL = True")
    for key in [key for key in sys.modules if key == name]:
        del sys.modules[key]
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        print("refused", name, error)
        continue
    print("DONE" if hasattr(module, "EVIL") else "refused", name)
