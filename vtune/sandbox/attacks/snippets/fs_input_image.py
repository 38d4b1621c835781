# MUST NOT: change, remove or replace the input picture
# CHECK: input image unchanged; refused
# SOFT: 2
# LAYER: landlock

import os


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


real = os.path.realpath(image_path)
folder = os.path.dirname(real)
attempt("open for writing", lambda: os.open(real, os.O_WRONLY))
attempt("through the link", lambda: os.open(image_path, os.O_RDWR))
attempt("remove", lambda: os.remove(real))
attempt("rename", lambda: os.rename(real, real + ".old"))
attempt("second file", lambda: os.open(folder + "/other.png", os.O_CREAT | os.O_WRONLY))
attempt("replace the folder", lambda: os.rename(folder, folder + "2"))
open("mine.png", "wb").write(b"x")
attempt("replace the file", lambda: os.replace("mine.png", real))
