"""What is read of the outputs of a vLLM in this process, and what it need not make for them."""

from typing import Any

from vtune.rollout.submission import Answer


def keep_numbers_alone(processor: Any) -> None:
    """No text of single tokens beside their log-probabilities: nobody reads it.

    To make it took a third of this process's time, in which it has conversations to lead.
    """
    add = processor.add_request

    def add_request(request: Any, *given: Any, **named: Any) -> None:
        add(request, *given, **named)
        processor.request_states[request.request_id].logprobs_processor.tokenizer = None

    processor.add_request = add_request


def answer_of(output: Any) -> Answer:
    """The turn that an output holds, as all of our vLLMs answer."""
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
