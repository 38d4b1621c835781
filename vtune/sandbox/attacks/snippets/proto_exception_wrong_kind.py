# MUST NOT: raise an exception that lies about itself in every attribute
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol


class Liar(SyntaxError):
    filename = property(lambda self: 1 / 0)
    lineno = property(lambda self: "seven")
    text = property(lambda self: ["no text"])
    msg = property(lambda self: self)

    def __getattribute__(self, name):
        if name in ("__traceback__", "__cause__", "__notes__", "__suppress_context__"):
            raise RuntimeError("no")
        return super().__getattribute__(name)

    def __str__(self):
        raise self

    def __eq__(self, other):
        return True

    __hash__ = None


raise Liar("x", ("a", "b", "c", "d"))
