# MUST NOT: crash the interpreter
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: fork server

import ctypes

print("before", flush=True)
ctypes.string_at(0)
