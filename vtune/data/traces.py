"""Cold-start traces: what a policy that looks before it answers would have written."""

import io
import json

from vtune.errors import DataError
from vtune.schema.box import Box
from vtune.schema.message import Message, Picture
from vtune.schema.pixels import decode_picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Crop, Trajectory


def look_trace(sample: Sample, box: tuple[int, int, int, int] | None) -> Trajectory:
    """The trace of one crop of the first picture, or of none, and the right answer.

    Args:
        sample: What is asked; its first picture must hold its bytes.
        box: What the trace crops, xyxy in pixels; None for an answer without a look.

    Raises:
        DataError: If there is no picture to crop.
    """
    final = f"<think>It is {sample.ground_truth}.</think>\n<answer>{sample.ground_truth}</answer>"
    if box is None:
        return Trajectory(
            sample_id=sample.id,
            source=sample.source,
            messages=(*sample.prompt, Message("assistant", final)),
            images=sample.images,
            answer=sample.ground_truth,
        )
    if not sample.images or sample.images[0].data is None:
        raise DataError("a trace needs a picture with its bytes", where=f"sample {sample.id!r}")
    x0, y0, x1, y1 = box
    code = f'\n```python\nimage.crop(({x0},{y0},{x1},{y1})).save("look.png")\n```\n'
    out = io.BytesIO()
    decode_picture(sample.images[0].data).crop(box).save(out, "PNG", compress_level=1)
    region: Box = (float(x0), float(y0), float(x1), float(y1))
    shown = len(sample.images)
    return Trajectory(
        sample_id=sample.id,
        source=sample.source,
        messages=(
            *sample.prompt,
            Message("assistant", f"<think>I look closer.\n<code>{code}</code>"),
            Message("user", "<sandbox_output>\n<image>\n</sandbox_output>", (shown,)),
            Message("assistant", final),
        ),
        images=(*sample.images, Picture(data=out.getvalue(), origin="call:0")),
        calls=(
            Call(
                tool="python",
                arguments=json.dumps({"code": code}),
                status="ok",
                images=(shown,),
                crops=(Crop(image=0, bbox=region, shown=shown),),
            ),
        ),
        answer=sample.ground_truth,
    )
