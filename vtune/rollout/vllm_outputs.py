"""How outputs of a vLLM in this process are read, and which of their parts it need not produce."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from vllm.v1.engine.exceptions import EngineGenerateError

from vtune.rollout.submission import ATTEMPTS, DRAWN, Answer


def keep_numbers_alone(processor: Any) -> None:
    """Omit the text of single tokens beside their log-probabilities: nobody reads it.

    Producing it took a third of this process's time, which its conversations need.
    """
    add = processor.add_request

    def add_request(request: Any, *given: Any, **named: Any) -> None:
        add(request, *given, **named)
        processor.request_states[request.request_id].logprobs_processor.tokenizer = None

    processor.add_request = add_request


async def turn_of(llm: Any, ask: Callable[[], AsyncIterator[Any]]) -> Answer:
    """A turn that vLLM generates, requested again if vLLM gives it up (see `ATTEMPTS`).

    Args:
        llm: It lives on after errors that concern one request.
        ask: Asks for the turn.

    Returns:
        The last attempt's, which may be a failure, too.

    Raises:
        EngineGenerateError: If it cannot be asked for.
        EngineDeadError: If vLLM has died.
    """
    for left in reversed(range(ATTEMPTS)):
        last: Any = None
        try:
            async for output in ask():
                last = output
        except EngineGenerateError:
            # Its end in this process may lose a picture between looking for it and taking it, too.
            if llm.errored or not left:
                raise
            continue
        answer = answer_of(last)
        if answer.finish in DRAWN:
            break
    return answer


def answer_of(output: Any) -> Answer:
    """The turn in an output, in the form that all of our vLLMs return."""
    (choice,) = output.outputs
    return Answer(
        prompt=output.prompt_token_ids,
        token_ids=choice.token_ids,
        logprobs=[
            entry[token].logprob for entry, token in zip(choice.logprobs, choice.token_ids, strict=True)
        ],
        finish=choice.finish_reason,
        stop=choice.stop_reason,
        spans=[(span.version, span.end) for span in choice.weight_versions or ()],
    )
