# MUST NOT: answer every later import with a module of one's own
# CHECK: sibling unchanged; next call answered
# SOFT: 2
# LAYER: protocol

import sys


class Finder:
    def find_spec(self, name, path=None, target=None):
        raise SystemExit("imported")

    find_module = find_spec


sys.meta_path[:] = [Finder()]
sys.path_hooks[:] = [Finder().find_spec]
sys.path[:] = ["."]
sys.path_importer_cache.clear()
for name in ("traceback", "linecache", "encodings.idna", "stringprep"):
    sys.modules.pop(name, None)
