# MUST NOT: raise an exception whose text never ends
# CHECK: killed or timeout within soft+grace; next call answered
# SOFT: 1
# LAYER: timer


class Endless(Exception):
    def __str__(self):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    __repr__ = __str__


raise Endless
