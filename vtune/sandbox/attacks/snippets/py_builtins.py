# MUST NOT: replace the built-in functions under the runner
# CHECK: sibling unchanged; next call answered
# SOFT: 2
# LAYER: protocol

import builtins

for name in dir(builtins):
    if not name.startswith("_") and name not in ("setattr", "BaseException"):
        setattr(builtins, name, None)
