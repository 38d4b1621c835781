"""An engine that reads its turns from a list."""

from collections.abc import Sequence
from itertools import cycle

from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Engine, Finish, Request, Weights


class ScriptedEngine(Engine):
    """Returns the turns of its script one after the other, starting over at the end.

    A turn that contains a stop text is cut after it, as a sampling engine would do.
    """

    def __init__(self, chat: Chat, script: Sequence[str]) -> None:
        self._chat = chat
        self._turns = cycle(script)
        self._version = 0

    async def generate(self, request: Request) -> Completion:
        """The next turn of the script, with log-probability 0 for each token."""
        text = next(self._turns)
        stops = [text.find(stop) + len(stop) for stop in request.sampling.stop if stop in text]
        ids = self._chat.words(text[: min(stops)] if stops else text)
        if not stops:
            ids.append(self._chat.end_id)
        cut = ids[: request.sampling.max_new_tokens]
        finish: Finish = "length" if len(cut) < len(ids) else "stop" if stops else "end"
        return Completion(tuple(cut), (0.0,) * len(cut), finish, (self._version,) * len(cut))

    async def take(self, weights: Weights, version: int) -> None:
        """Only record the version."""
        self._version = version

    async def rest(self) -> None:
        """Does nothing: no device is used."""

    async def aclose(self) -> None:
        """Does nothing: nothing was started."""
