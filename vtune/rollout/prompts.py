"""How a sample is put to the policy."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import AfterValidator

from vtune.environments import DEFAULT, name_of
from vtune.registry import Parts, first_line
from vtune.rollout.prompt_pool import pool_suffix
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.tools.calls import ANSWER_OPEN, tools_block
from vtune.tools.python import NAME as PYTHON
from vtune.verifiers import verifier_of
from vtune.verifiers.answer_instruction import missing_marks, placed, self_contained, with_ending

Size = tuple[int, int]
Schemas = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """How a sample becomes turns."""

    turns: Callable[[Sample, Sequence[str], Sequence[Size], Schemas, int], tuple[Message, ...]]
    """(sample, file name of each picture in the sandbox, their (width, height), schemas of the tools with
    JSON arguments, number that chooses the wording) -> turns. A group has one number, so that its rollouts
    answer the same question."""
    tells: Collection[str] | None = None
    """The tools that the style, or else the sample's own turns, tells the policy about; None: all."""
    bare: bool = False
    """The sample's turns stay as they are: nothing is added, not even where the answer goes."""
    says_where: bool = False
    """The style itself states where the answer goes."""
    draws: bool = False
    """The wording is chosen at random, so it takes several choices to show what it may say."""

    def tells_of(self, tool: str) -> bool:
        """Whether the policy is told about a tool."""
        return self.tells is None or tool in self.tells


STYLES: Parts[PromptStyle] = Parts(
    "prompt",
    lambda style: first_line(style.turns),
    PromptStyle,
    calls=("turns(sample, names, sizes, schemas, draw) -> tuple[Message, ...]",),
)
"""Name in the recipe -> style."""

Style = Annotated[str, AfterValidator(STYLES.known)]

PLAIN = "plain"
"""The style that adds nothing."""
OF_TRACES = "codev"
"""The default style of traces made from a user's own samples, in which looks are code."""

PYTHON_RULES = """**Python execution rules**:
- The Python code will be executed by an external sandbox, and its output will be returned to you in the format \
<sandbox_output>…</sandbox_output>.
- Use sandbox output to decide whether to answer the question or run another round of Python code.
- For image operations, load the image and then process it (crop, resize, rotate, adjust contrast).
- Save any processed images and print the saved filename.
- For calculation, define all variables and print output.
- Python code must be wrapped in the following block:
<code>
```python
# your python code here
```
</code>"""
"""CodeV, template 13.1: how code is written and executed."""

CODEV_SYSTEM = f"""You are a helpful assistant.

**Goal**:
- Answer the user's question based on the provided image and question.
- You can optionally generate and execute Python code to help analyze or process the image before answering.

{PYTHON_RULES}"""
"""CodeV, template 13.1, verbatim."""

CODEV_PICTURE = '\n### User Image Path:** "{path}"\n### User Image Size:** "{width}×{height}"'
"""CodeV, template 13.1: how the user turn describes its picture. The paper has one picture per question; of
several, each is described in this form (ours)."""

CODEV_FORMAT = """
### **Output Format (strict adherence required):**
<think>Your detailed reasoning process, including any <code> </code>, should go here.</think>
<answer>Answer to the user's question.</answer>"""
"""CodeV, template 13.1: the end of the user turn."""

TOOLS_SYSTEM = f"""You answer questions about pictures, one step at a time, and look for what you do not know.

In each turn, first think: what is known, what is missing, and which step comes next. Write it between <think> and \
</think>. Then do one of two things:
- If something is missing, call a tool. Its result comes back in {ANSWER_OPEN} and you go on.
- If you know the answer, write it between <answer> and </answer>, in as few words as it needs, and nothing after it.

Never guess what a tool would say. A result may be incomplete, or about something else: read it with care, and try \
another query or a closer look where it does not help."""
"""Ours, in the form that Dong et al. ask for (appendix B.2): thoughts, then one tool call or the answer."""


CODE_OPEN = "<code>\n"
"""How a prompt shows where code is written; a `<code>x</code>` within a line may be HTML."""


def codev(
    sample: Sample, names: Sequence[str], sizes: Sequence[Size], schemas: Schemas = (), draw: int = 0
) -> tuple[Message, ...]:
    """CodeV's template 13.1: thoughts, code and an answer, with the rules for code in the system turn.

    A sample without tools, or with its own system turn, keeps its system turn; if that does not say how code
    is written, the template's rules are appended.

    Args:
        sample: The question.
        names: File name of each picture in the sandbox.
        sizes: (width, height) of each stored picture, in pixels.
        schemas: Of tools with JSON arguments; not used by this template.
        draw: Not used: there is one template.
    """
    messages = list(sample.prompt)
    if sample.tools and messages[0].role != "system":
        messages.insert(0, Message("system", CODEV_SYSTEM))
    elif PYTHON in sample.tools and CODE_OPEN not in messages[0].content:
        messages[0] = Message("system", f"{messages[0].content}\n\n{PYTHON_RULES}".strip())
    last = max(index for index, message in enumerate(messages) if message.role == "user")
    pictures = "".join(
        CODEV_PICTURE.format(path=name, width=width, height=height)
        for name, (width, height) in zip(names, sizes, strict=True)
    )
    messages[last] = Message("user", messages[last].content + pictures + CODEV_FORMAT)
    return tuple(messages)


def plain(
    sample: Sample, names: Sequence[str], sizes: Sequence[Size], schemas: Schemas = (), draw: int = 0
) -> tuple[Message, ...]:
    """The sample's own turns, unchanged: for policies that learnt the protocol from traces."""
    return sample.prompt


def tools(
    sample: Sample, names: Sequence[str], sizes: Sequence[Size], schemas: Schemas = (), draw: int = 0
) -> tuple[Message, ...]:
    """Thoughts, tool calls and an answer, with the tools in the system turn as Qwen's template prints them.

    If the sample has a system turn, it stays and the tools follow it. If `python` is offered too, the rules
    of CodeV's template say how code is written.

    Args:
        sample: The question.
        names: File name of each picture in the sandbox.
        sizes: (width, height) of each stored picture, in pixels.
        schemas: Of the tools that the sample offers besides `python`.
        draw: Not used: there is one template.
    """
    own = sample.prompt[0].role == "system"
    parts = [sample.prompt[0].content if own else TOOLS_SYSTEM]
    if PYTHON in sample.tools:
        parts.append(PYTHON_RULES)
    if schemas:
        parts.append(tools_block(schemas))
    return (Message("system", "\n\n".join(parts)), *sample.prompt[own:])


def pool(
    sample: Sample, names: Sequence[str], sizes: Sequence[Size], schemas: Schemas, draw: int
) -> tuple[Message, ...]:
    """The sample's own turns, with a request from V-Triune's prompt pool after the last question.

    Which request depends on where the sample's answer is expected, and on `draw`.
    """
    return with_ending(sample, pool_suffix(missing_marks(sample), draw=draw)).prompt


def ask(
    style: Style,
    sample: Sample,
    names: Sequence[str],
    sizes: Sequence[Size],
    schemas: Schemas = (),
    *,
    draw: int,
) -> tuple[Message, ...]:
    """A sample as turns, in the style that a recipe names; for the arguments see `codev` and the others.

    A style describes our tools: a sample of another environment keeps its own turns. Except in `bare` styles,
    the prompt always names the places that the verifier and the format reward read, and the form of the
    answer where it cannot be guessed, even if neither the file nor the template does.
    """
    how = STYLES[style]
    if how.bare:
        return how.turns(sample, names, sizes, schemas, draw)
    if name_of(sample) != DEFAULT:
        return placed(sample).prompt
    if verifier_of(sample).self_contained:
        sample = self_contained(sample)
    turns = how.turns(sample, names, sizes, schemas, draw)
    return turns if how.says_where else placed(replace(sample, prompt=turns)).prompt


STYLES.add(OF_TRACES, PromptStyle(codev, tells=(PYTHON,)))
STYLES.add(PLAIN, PromptStyle(plain, bare=True))
STYLES.add("tools", PromptStyle(tools))
STYLES.add("pool", PromptStyle(pool, tells=(), says_where=True, draws=True))
