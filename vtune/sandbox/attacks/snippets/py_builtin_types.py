# MUST NOT: change the methods of built-in types for everybody in the process
# CHECK: sibling unchanged; next call answered
# SOFT: 2
# LAYER: protocol

import ctypes
import gc

for kind, method in ((dict, "get"), (str, "encode"), (bytes, "decode"), (int, "to_bytes"), (list, "append")):
    methods = gc.get_referents(kind.__dict__)[0]
    methods[method] = lambda *arguments, **options: None
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
