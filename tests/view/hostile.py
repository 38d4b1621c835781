"""A run in which every text and picture is an attack on the program that shows it."""

from dataclasses import replace
from pathlib import Path

from tests.view.runs import LOOKED, MISSED, make_run, png
from vtune.runs.plan.self_test import bombs
from vtune.schema.message import Message, Picture
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Crop, Trajectory

MARKUP = (
    "<script>alert(1)</script>",
    "</script></style></title></textarea>--><img src=x onerror=alert(2)>",
    "<svg onload=alert(3)><iframe src='javascript:alert(4)'></iframe>",
    "<style>*{display:none!important}</style><link rel=stylesheet href=//evil.example/x.css>",
    "<base href=//evil.example/><meta http-equiv=refresh content='0;url=//evil.example'>",
    "<a href='javascript:alert(5)'>x</a> javascript:alert(6) data:text/html,<script>alert(7)</script>",
    "![seen](http://evil.example/seen.png) [x](javascript:alert(8)) `x` <!-- x -->",
    "${alert(9)} {{constructor.constructor('alert(10)')()}} \" onmouseover=alert(11) x=\"",
)
TERMINAL = (
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x9b2J\x07\x08\x7f\r\x00[bold red]rich[/] [link=http://evil.example]x[/link]",
)
UNSEEN = "\u202eevil\u202c \u2066isolated\u2069 \u200e\u061c\ufeff \U000e0041"
TEXT = "\n".join((*MARKUP, *TERMINAL, UNSEEN))
FORMULA = '=HYPERLINK("http://evil.example")'
LONG = 10_000_000
"""Characters in one line."""
STEERING = set("\x1b\x07\x08\x7f\x9b\x00\u202e\u202c\u2066\u2069\u200e\u061c\ufeff\U000e0041")
"""Characters that must never reach a screen unescaped."""


def hostile_trajectories() -> list[Trajectory]:
    """Trajectories with hostile texts everywhere, a line of 10 MB, and bombs or broken pictures."""
    call = Call(
        tool=TEXT,
        arguments=TEXT,
        status="error",
        error=TEXT,
        output=TEXT,
        crops=(Crop(0, (8.0, 8.0, 24.0, 20.0)),),
        flags=("whole_image",),
    )
    texts = replace(
        MISSED,
        sample_id=TEXT,
        source=TEXT,
        messages=(
            Message("user", f"<image>{TEXT}", (0,)),
            Message("assistant", f"<code>{TEXT}</code>{TEXT}"),
        ),
        images=(Picture(data=png(), origin="input"),),
        calls=(call,),
        answer=TEXT,
        reward=Reward(
            total=0.1, accuracy=0.0, format=1.0, tool=0.0, why=TEXT, parts={TEXT: 1.0}, own={TEXT: 0.5}
        ),
        tool_scores=(0.0,),
        call_advantages=(-0.5,),
    )
    line = replace(
        LOOKED,
        sample_id="long",
        messages=(*LOOKED.messages[:-1], Message("assistant", "A" * LONG)),
        answer="B" * 5_000,
    )
    broken = (b"\x89PNG\r\n\x1a\nbroken", b"<svg onload=alert(12)>", b"GIF89a", b"", *bombs().values())
    images = tuple(Picture(data=content, origin="input") for content in broken)
    marks = Message("user", "<image>" * len(images), tuple(range(len(images))))
    pictures = replace(
        LOOKED,
        sample_id="pictures",
        images=(*images, Picture(data=png(16, 12, "red"), origin="call:0")),
        messages=(marks, *LOOKED.messages[2:3]),
        calls=(
            replace(
                LOOKED.calls[0], images=(len(images),), crops=(Crop(0, (1.0, 1.0, 5.0, 5.0), len(images)),)
            ),
        ),
    )
    return [texts, line, pictures, LOOKED]


def make_hostile_run(folder: Path) -> Path:
    """Make a run with two steps of them; its name is an attack, too."""
    run = make_run(
        folder / "<img src=x onerror=alert(13)>", {0: hostile_trajectories(), 4: hostile_trajectories()[:1]}
    )
    (run / "recipe.yaml").write_text(
        'steps: 2\nmodel: "<script>alert(14)</script>"\n"<b onclick=alert(15)>": 1\n'
    )
    return run
