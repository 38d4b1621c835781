# MUST NOT: choke the parser or the compiler inside the session
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: timer

import ast

sources = {
    "brackets": "(" * 50_000,
    "minus": "-" * 60_000 + "1",
    "attributes": "a" + ".b" * 30_000,
    "else": "".join(" " * n + "if 1:\n" for n in range(99)) + " " * 99 + "pass",
    "strings": "f'" + "{" * 5000,
    "powers": "(" * 90 + "2**" * 50 + "2" + ")" * 90,
    "lambda": "lambda: " * 30_000 + "1",
    "calls": "f(" * 3000 + ")" * 3000,
    "commas": "x = [" + "1," * 500_000 + "]",
    "null": "x = 1\0",
    "bytes": "# coding: rot13\nx",
}
for name, source in sources.items():
    try:
        compile(ast.parse(source), name, "exec")
        print("compiled", name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        print("refused", name, type(error).__name__)
