# MUST NOT: climb from an innocent object to the functions that reach the host
# CHECK: canary unchanged; token absent; refused
# SOFT: 2
# LAYER: landlock

import sys


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


classes = ().__class__.__base__.__subclasses__()
loader = next((kind for kind in classes if kind.__name__ == "FileLoader"), None)
attempt("loader", lambda: loader("x", "{{CANARY}}/secret.txt").get_data("{{CANARY}}/secret.txt"))
attempt("posix", lambda: sys.modules["posix"].open("{{CANARY}}/secret.txt", 0))
attempt("io", lambda: __import__("_io").FileIO("{{CANARY}}/secret.txt").read())
attempt("code", lambda: exec(bytes.fromhex("6f70656e28227b7b7d7d2229").decode().replace("{}", "x")))
attempt("getattr", lambda: getattr(os, "re" + "move")("{{CANARY}}/victim.txt"))
attempt("zip import", lambda: __import__("zipimport").zipimporter("{{CANARY}}/secret.txt"))
attempt("linecache", lambda: __import__("linecache").getlines("{{CANARY}}/secret.txt")[0])
attempt("fileinput", lambda: list(__import__("fileinput").input("{{CANARY}}/secret.txt")))
attempt("tokenize", lambda: __import__("tokenize").open("{{CANARY}}/secret.txt").read())
