"""A few traces of each published cold-start layout (see `specimens`)."""

import json
from pathlib import Path

from vtune.data.formats.specimens import TARGET, Specimen, coded, json_lines, picture_file


def thyme(folder: Path) -> Specimen:
    """Thyme-SFT: one `<think>` around all the code of a trace; with one call, with two, and with none."""
    crop = "<code>\n```python\nimage.crop((20, 20, 70, 60)).save('a.jpg')\n```\n</code>"
    shown = "<sandbox_output><image></sandbox_output>"
    end = "Enough.</think>\n<answer>7</answer>"
    responses = [
        f"<think>I cut it out.\n{crop}\n{shown}\n{end}",
        f"<think>I cut it out.\n{crop}\n{shown}\nOnce more.\n{crop}\n{shown}\n{end}",
        "<think>It is large.</think>\n<answer>7</answer>",
    ]
    rows = [
        {
            "image": [coded(number) for number in range(1 + response.count(shown))],
            "question": "<image>\nWhich number is on the sign?",
            "response": response,
        }
        for response in responses
    ]
    return Specimen(json_lines(folder / "thyme.jsonl", rows))


def conversations(folder: Path) -> Specimen:
    """Code calls as in ShareGPT, tool calls in separate turns, and a call in `tool_calls`."""
    asked = "<image>\nWhich number is on the sign?"
    box = {"name": "image_zoom_in_tool", "arguments": {"bbox_2d": list(TARGET), "label": "sign"}}
    pictures = [picture_file(folder, number) for number in range(2)]
    code = "<think>I cut it out.</think>\n<code>\nimage.crop((20, 20, 70, 60)).save('a.jpg')\n</code>"
    end = "<think>Enough.</think>\n<answer>7</answer>"
    spoken = [("human", asked), ("gpt", code), ("observation", "<image>"), ("gpt", end)]
    apart = [
        ("user", asked),
        ("tool_call", json.dumps(box)),
        ("tool_response", "<image>"),
        ("assistant", end),
    ]
    openai = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": box}]},
        {"role": "tool", "content": "<image>"},
        {"role": "assistant", "content": end},
    ]
    rows = [
        {"conversations": [{"from": who, "value": text} for who, text in spoken], "images": pictures},
        {"messages": [{"role": who, "content": text} for who, text in apart], "images": pictures},
        {"messages": openai, "images": pictures},
    ]
    return Specimen(json_lines(folder / "traces.jsonl", rows))
