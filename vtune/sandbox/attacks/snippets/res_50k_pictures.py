# MUST NOT: return fifty thousand pictures
# CHECK: killed; next call answered
# SOFT: 8
# LAYER: quota

import io

buffer = io.BytesIO()
Image.new("RGB", (4, 4)).save(buffer, "PNG")
content = buffer.getvalue()
for number in range(50_000):
    with open(f"p{number}.png", "wb") as file:
        file.write(content)
print("DONE 50000 pictures")
