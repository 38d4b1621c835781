"""The python tool: runs a model's code in its session and shows what came of it."""

from vtune.sandbox import Execution
from vtune.tools import TOOLS
from vtune.tools.observation import IMAGE_MARK, Observation, inert, sandbox_output
from vtune.tools.recoverable_session import Runs
from vtune.tools.similarity import LOOKS
from vtune.tools.tool import ToolPart

NAME = "python"
"""The tool that takes code, in a separate format; all others take JSON."""
CODE = "code"
"""The tag around code."""

NOTHING = "(no output: print a value or save a picture to see it)"


async def run_python(session: Runs, code: str) -> Observation:
    """Run code and turn the result into what the model sees.

    Args:
        session: The trajectory's own session.
        code: The text between `<code>` and `</code>`.

    Returns:
        With the status `infra` and an empty text if the sandbox itself failed: then nothing is made up, and
        the trajectory must not be scored.
    """
    execution = await session.run(code)
    return Observation(
        text="" if execution.status == "infra" else sandbox_output(_text(execution)),
        images=execution.images,
        status=execution.status,
        error=execution.error,
        output=execution.output,
        crops=execution.crops,
        seconds=execution.seconds,
    )


def _text(execution: Execution) -> str:
    """What was printed, then the pictures, then the error."""
    lines = [line for line in execution.output.split("\n") if not _only_names(line, execution.names)]
    parts = [
        inert("\n".join(lines)).strip("\n"),
        *[IMAGE_MARK] * len(execution.images),
        inert(execution.error),
    ]
    return "\n".join(part for part in parts if part) or NOTHING


def _only_names(line: str, names: tuple[str, ...]) -> bool:
    """Whether a line is only the file name of a returned picture, which is shown anyway."""
    return line.strip().removeprefix("./").removeprefix("/workspace/") in names


TOOLS.add(
    NAME,
    ToolPart(
        "Run code on the pictures, in a sandbox.",
        opened=None,
        example={CODE: 'print(image.size)\nimage.crop((8, 8, 40, 40)).save("look.png")'},
        credit=LOOKS,
    ),
)
