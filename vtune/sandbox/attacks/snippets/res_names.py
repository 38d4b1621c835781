# MUST NOT: break the collector by file names
# CHECK: broker alive; next call answered; no file left
# SOFT: 2
# LAYER: collector


body = open(image_path, "rb").read()
for name in (
    b"line\nbreak.png",
    b"\xff\xfe\x80.png",
    b"x" * 251 + b".png",
    b"-rf.png",
    b"$(id).png",
    b"`id`.png",
    b"..png",
    b"...png",
    b" .png",
    b".png",
    b"\x1b[2J\x1b]0;title\x07.png",
    "\u202egnp.exe.png".encode(),
    b'ok","status":"ok.png',
    b"%s%n{0}.png",
    b"image_0.png.png",
    b"con.png",
    b"\x01\x02\x7f.png",
    "\ud800.png".encode("utf-8", "surrogatepass"),
):
    try:
        with open(b"./" + name, "wb") as file:
            file.write(body)
    except OSError as error:
        print("refused", error.strerror)
print("made")
