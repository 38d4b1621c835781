# MUST NOT: have the trainer read as a picture what is none, or wake a rare decoder
# CHECK: token absent; canary unchanged; next call answered
# SOFT: 2
# LAYER: collector


postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n({{CANARY}}/secret.txt) run\nshowpage\n"
vector = b"<svg xmlns:x='http://www.w3.org/1999/xlink'><image x:href='file://{{CANARY}}/secret.png'/></svg>"
for name, content in {
    "script.png": postscript,
    "vector.png": vector,
    "document.jpg": b"%PDF-1.4\n",
    "archive.png": b"PK\x03\x04" + bytes(60),
    "empty.png": b"",
    "pickle.png": b"\x80\x04\x95" + bytes(20),
    "array.png": b"\x93NUMPY\x01\0v\0{'descr': 'O', 'shape': (1,)}",
    "text.webp": b"RIFF\xff\xff\xff\xffWEBPVP8 ",
    "ours.gif": open(image_path, "rb").read(),
    "cut.png": open(image_path, "rb").read()[:200],
}.items():
    open(name, "wb").write(content)
for kind in ("TIFF", "PPM", "ICO", "TGA", "PCX", "SGI", "JPEG2000"):
    try:
        image.convert("RGB").resize((16, 16)).save(f"{kind}.png", kind)
    except (OSError, KeyError, ValueError) as error:
        print("refused", kind, error)
print("made")
