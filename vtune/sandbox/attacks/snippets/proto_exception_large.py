# MUST NOT: raise an exception with a text of gigabytes, or of the wrong kind
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: protocol


class Name(type):
    @property
    def __name__(cls):
        return 7

    @property
    def __module__(cls):
        raise KeyError

    __qualname__ = "x" * 10_000_000


class Large(Exception):
    def __str__(self):
        return "large " * 100_000_000


error = Large("x" * 1000)
error.__notes__ = ["note " * 1_000_000] * 20
raise error
