# MUST NOT: poison the modules that the runner answers with
# CHECK: sibling unchanged; next call answered
# SOFT: 2
# LAYER: protocol

import ast
import builtins
import json
import os
import signal
import struct
import sys

json.dumps = json.loads = lambda *arguments, **options: "{}"
json.JSONEncoder.encode = json.JSONDecoder.decode = lambda *arguments: "{}"
ast.parse = lambda *arguments, **options: 1 / 0
struct.pack = struct.unpack = None
os.read = os.write = os.getpid = os.chdir = None
signal.setitimer = signal.signal = None
builtins.compile = builtins.exec = builtins.len = builtins.isinstance = None
for name in list(sys.modules):
    if name.startswith(("json", "guest", "struct")):
        sys.modules[name] = None
