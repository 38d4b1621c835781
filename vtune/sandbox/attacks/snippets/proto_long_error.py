# MUST NOT: send back an error, a status or a note of many megabytes
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: protocol

import builtins
import json
import types


def encode_as(change):
    """Pass every outgoing message through `change`, even for code that holds the encoder itself."""
    for owner, name in ((json, "dumps"), (json.JSONEncoder, "encode"), (json.JSONEncoder, "iterencode")):
        function = getattr(owner, name)
        original = types.FunctionType(function.__code__, function.__globals__, name, function.__defaults__)
        original.__kwdefaults__ = function.__kwdefaults__

        def lying(*arguments, original=original, **options):
            where = next((n for n, value in enumerate(arguments) if isinstance(value, dict)), None)
            if where is not None and "n" in arguments[where]:
                changed = change(dict(arguments[where]))
                arguments = (*arguments[:where], changed, *arguments[where + 1 :])
            return original(*arguments, **options)

        setattr(builtins, f"vt_{name}", lying)
        source = f"lambda *arguments, **options: vt_{name}(*arguments, **options)"
        function.__code__ = eval(source).__code__


def lie(message):
    for key in ("error", "status", "notes"):
        if key in message:
            message[key] = "x" * 50_000_000 if key != "notes" else ["x" * 100] * 500_000
    return message


encode_as(lie)
