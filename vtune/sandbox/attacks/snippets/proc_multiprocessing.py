# MUST NOT: start workers
# CHECK: refused; no process left
# SOFT: 2
# LAYER: seccomp

import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


def pool():
    with ProcessPoolExecutor(2) as workers:
        return list(workers.map(abs, [-1]))


for method in ("fork", "spawn", "forkserver"):
    attempt(method, lambda method=method: multiprocessing.get_context(method).Process(target=print).start())
attempt("manager", lambda: multiprocessing.Manager().list())
attempt("executor", pool)
