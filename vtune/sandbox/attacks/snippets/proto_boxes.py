# MUST NOT: claim crops of places that are not in the picture, or that are not numbers
# CHECK: broker alive; next call answered
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
    boxes = (
        [-1e9, -1e9, 1e9, 1e9],
        [float("nan")] * 4,
        [0, 0, float("inf"), 1],
        [9, 9, 1, 1],
        [0, 0, 1],
        [None] * 4,
        ["0"] * 4,
        [True, False, True, True],
        {"x": 1},
    )
    crops = [
        {"image": image, "bbox": box, "shown": shown}
        for box in boxes
        for image in (0, -1, 99, None)
        for shown in (0, -1, 99, None)
    ]
    for key in list(message):
        if "crop" in key or "box" in key:
            message[key] = crops
    return message


encode_as(lie)
image.crop((0, 0, 10, 10)).save("crop.png")
