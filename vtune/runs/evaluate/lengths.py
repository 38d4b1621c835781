"""Whether a suite's questions leave room for a reply."""

from vtune.models.served import is_scripted, is_served
from vtune.runs.agent.prompt_lengths import check_prompt_lengths
from vtune.runs.evaluate.questions import read_questions
from vtune.runs.evaluate.suite import EvalSuite


def check_question_lengths(suite: EvalSuite, model: str, *, count: int) -> None:
    """Check the first questions of a suite, if the model has a tokenizer: see `check_prompt_lengths`.

    Args:
        suite: The suite, with its limit.
        model: Its tokenizer counts; an endpoint or a reply file has none.
        count: Number of questions to be asked.

    Raises:
        DataError: As `check_prompt_lengths` does.
    """
    if is_served(model) or is_scripted(model):
        return
    further = "leave them unscored, with a higher reward.max_unscored"
    questions = read_questions(suite, limit=count)
    check_prompt_lengths(suite, model, questions, total=count, further=further)
