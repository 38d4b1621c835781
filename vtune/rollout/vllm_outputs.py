"""How outputs of a vLLM in this process are read, and which of their parts it need not produce."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from vllm.v1.engine.exceptions import EngineGenerateError

from vtune.rollout.submission import ATTEMPTS, DRAWN, Answer


def keep_numbers_alone(processor: Any) -> None:
    """Skip decoding single tokens to text next to their log-probabilities: nobody reads it.

    Decoding took a third of the time of this process, which its conversations need.
    """
    add = processor.add_request

    def add_request(request: Any, *given: Any, **named: Any) -> None:
        add(request, *given, **named)
        processor.request_states[request.request_id].logprobs_processor.tokenizer = None

    processor.add_request = add_request


async def turn_of(llm: Any, ask: Callable[[], AsyncIterator[Any]]) -> Answer:
    """A turn that vLLM generates, requested again if vLLM aborts it (see `ATTEMPTS`).

    Args:
        llm: Keeps running after errors that concern a single request.
        ask: Requests the turn.

    Returns:
        The result of the last attempt, which may also be a failure.

    Raises:
        EngineGenerateError: If the request fails.
        EngineDeadError: If vLLM has died.
    """
    for left in reversed(range(ATTEMPTS)):
        last: Any = None
        try:
            async for output in ask():
                last = output
        except EngineGenerateError:
            # vLLM's frontend, too, may lose a picture between looking it up and using it.
            if llm.errored or not left:
                raise
            continue
        answer = answer_of(last)
        if answer.finish in DRAWN:
            break
    return answer


def answer_of(output: Any) -> Answer:
    """The turn in an output, in the form shared by all our uses of vLLM."""
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
