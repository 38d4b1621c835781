# MUST NOT: change the runner's functions where they are, whatever name they go by
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import gc
import types


def nothing(*arguments, **options):
    return {}


for function in gc.get_objects():
    if isinstance(function, types.FunctionType) and str(function.__module__).startswith("guest"):
        if not function.__code__.co_freevars:
            function.__code__ = nothing.__code__
