"""The transcript of one conversation: what was said, by whom, and which tokens the policy sampled."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Protocol

from vtune.errors import DataError
from vtune.models.batch import Row
from vtune.models.chat import Chat
from vtune.models.pictures import PictureReader, Pixels
from vtune.rollout.engine import Completion
from vtune.rollout.picture_prefetch import PrefetchedPictures
from vtune.schema.message import Message, Picture
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.calls import OPEN, responses
from vtune.tools.python import CODE


class Speech(Protocol):
    """Renders turns: a `Chat`, or `Words` for a model whose tokens are not visible."""

    end_id: int

    def prompt(self, messages: Sequence[Message], pixels: Sequence[Pixels]) -> list[int]:
        """See `Chat.prompt`."""
        ...

    def observation(self, text: str, pixels: Sequence[Pixels], *, ended: bool) -> list[int]:
        """See `Chat.observation`."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """See `Chat.decode`."""
        ...


class Transcript:
    """A conversation that grows turn by turn; nothing in it is ever re-tokenized.

    Rollouts and cold-start traces use the same transcript, so both have the same tokens and the same loss
    mask: only what the policy wrote counts; tool output and the text in between do not.
    """

    def __init__(self, chat: Speech, reader: PictureReader | PrefetchedPictures) -> None:
        self._chat = chat
        self._reader = reader
        self._counted = 0
        self.token_ids: list[int] = []
        self.loss_mask: list[bool] = []
        self.logprobs: list[float | None] = []
        self.weight_versions: list[int | None] = []
        self.entropies: list[float | None] = []
        self.messages: list[Message] = []
        self.images: list[Picture] = []
        self.pixels: list[Pixels] = []
        self.calls: list[Call] = []

    def open(self, messages: Sequence[Message], images: Sequence[bytes]) -> None:
        """Add the turns before the policy's first one; pictures in the order of their marks."""
        pixels = [self._reader.read(data) for data in images]
        self._append(self._chat.prompt(messages, pixels))
        first = 0
        for message in messages:
            count = message.content.count("<image>")
            self.messages.append(replace(message, images=tuple(range(first, first + count))))
            first += count
        self.images += [self._picture(data, "input") for data in images]
        self.pixels += pixels

    def wrote(self, completion: Completion) -> str:
        """Add a turn of the policy exactly as it was sampled; returns its text."""
        start = len(self.token_ids)
        self.token_ids += completion.token_ids
        self.loss_mask += [True] * len(completion.token_ids)
        self.logprobs += completion.logprobs
        self.weight_versions += completion.weight_versions
        self.entropies += completion.entropies or [None] * len(completion.token_ids)
        self._counted = max(self._counted, completion.context)
        text = self._chat.decode(completion.token_ids) if completion.text is None else completion.text
        self.messages.append(Message("assistant", text))
        self._turn = (start, len(self.token_ids))
        return text

    @property
    def last_turn(self) -> tuple[int, int]:
        """First and last+1 token of the policy's last turn."""
        return self._turn

    @property
    def length(self) -> int:
        """Tokens so far; if tokens are not visible, as counted by the engine up to its last turn."""
        return max(len(self.token_ids), self._counted)

    def observation_length(self, text: str, images: Sequence[bytes]) -> int:
        """Tokens that a tool's output would take."""
        return len(self._observation(text, [self._reader.read(data) for data in images]))

    def spans(self, ends: Sequence[int]) -> list[tuple[int, int]]:
        """Splits the policy's last turn into parts, as first and last+1 token; together they cover the turn.

        Args:
            ends: Index after the last character of each part, ascending; the last part extends to the end.
        """
        start, end = self._turn
        marks = [start]
        for characters in ends[:-1]:
            low, high = marks[-1], end
            while low < high:
                middle = (low + high) // 2
                if len(self._chat.decode(self.token_ids[start:middle])) >= characters:
                    high = middle
                else:
                    low = middle + 1
            marks.append(low)
        return list(pairwise([*marks, end]))

    def returned(self, text: str, results: Sequence[tuple[Call, Sequence[bytes]]]) -> None:
        """Add tool results: each answered call with its pictures (`images` is filled in here)."""
        images = [data for _, shown in results for data in shown]
        pixels = [self._reader.read(data) for data in images]
        self._append(self._observation(text, pixels))
        first = len(self.images)
        self.messages.append(Message("user", text, tuple(range(first, first + len(images)))))
        self.pixels += pixels
        for call, shown in results:
            numbers = tuple(range(len(self.images), len(self.images) + len(shown)))
            origin = f"call:{len(self.calls)}"
            self.images += [self._picture(data, origin) for data in shown]
            self.calls.append(replace(call, images=numbers))

    def ran(self, call: Call) -> None:
        """Add a call whose output had no room: it counts, although the policy never saw the result."""
        self.calls.append(call)

    def shown_size(self, data: bytes) -> tuple[int, int]:
        """(width, height) in pixels at which the policy sees a picture."""
        return self._reader.shown_size(data)

    def row(self) -> Row:
        """The conversation as a row of a batch."""
        return Row(tuple(self.token_ids), tuple(self.pixels))

    def _picture(self, data: bytes, origin: str) -> Picture:
        return Picture(data=data, origin=origin, seen=self._reader.shown_size(data))

    def _observation(self, text: str, pixels: Sequence[Pixels]) -> list[int]:
        ended = bool(self.token_ids) and self.token_ids[-1] == self._chat.end_id
        return self._chat.observation(text, pixels, ended=ended)

    def _append(self, token_ids: Sequence[int]) -> None:
        self.token_ids += token_ids
        self.loss_mask += [False] * len(token_ids)
        self.logprobs += [None] * len(token_ids)
        self.weight_versions += [None] * len(token_ids)
        self.entropies += [None] * len(token_ids)


def check_trace(trace: Trajectory, *, where: str) -> None:
    """Check that a trace can be trained on, without a model.

    Raises:
        DataError: If its turns could not come from a rollout, the numbers of calls and observations differ,
            or a picture has no bytes.
    """
    roles = [message.role for message in trace.messages]
    _check_turns(trace, roles, where=where)
    observations = sum(
        responses(message.content)
        for message in trace.messages[roles.index("assistant") :]
        if message.role == "user"
    )
    if observations != len(trace.calls):
        raise DataError(
            f"a trace has {observations} observations for {len(trace.calls)} calls",
            where=where,
            fix="drop the row",
        )
    if any(picture.data is None for picture in trace.images):
        raise DataError("a picture of a trace has no bytes", where=where, fix="store pictures as bytes")


def _check_turns(trace: Trajectory, roles: Sequence[str], *, where: str) -> None:
    if "assistant" not in roles or roles[-1] != "assistant":
        raise DataError(
            "a trace must end with an assistant turn", where=where, fix="drop the row or complete it"
        )
    first = roles.index("assistant")
    if first == 0:
        raise DataError(
            "a trace begins with an assistant turn", where=where, fix="put the question before it"
        )
    for number, role in enumerate(roles[first:], start=first):
        # A rollout has neither adjacent assistant turns nor adjacent observations: strict alternation is
        # required.
        wanted = "user" if (number - first) % 2 else "assistant"
        if role != wanted:
            raise DataError(
                f"turn {number} of a trace is from the {role}, after one from the {roles[number - 1]}",
                where=where,
                fix="let both alternate from the first assistant turn on: join turns, or drop the row",
            )
    for number, message in enumerate(trace.messages):
        if message.role == "assistant" and not message.content.strip():
            raise DataError(
                f"turn {number} of a trace, of the assistant, is empty: it would teach the model "
                "to say nothing",
                where=where,
                fix="write what it says, or drop the row",
            )
    if any(message.role == "assistant" and message.images for message in trace.messages):
        raise DataError(
            "an assistant turn of a trace has pictures, which no policy can write",
            where=where,
            fix="put them into the user turn that shows them",
        )


def replay(trace: Trajectory, chat: Chat, reader: PictureReader) -> Transcript:
    """The transcript of a trace from elsewhere: its messages become tokens.

    Raises:
        DataError: If the trace does not end with the assistant, or has no picture data.
    """
    book = Transcript(chat, reader)
    first = next((i for i, message in enumerate(trace.messages) if message.role == "assistant"), None)
    if first is None or trace.messages[-1].role != "assistant":
        raise DataError("a trace must end with an assistant turn", where=f"trace of {trace.sample_id!r}")
    opening = trace.messages[:first]
    book.open(opening, _data(trace, opening))
    calls = iter(trace.calls)
    for index, message in enumerate(trace.messages[first:], start=first):
        if message.role == "assistant":
            ids = chat.words(message.content)
            # Generation stops after code, so the policy does not learn to end such a turn, unlike any other.
            stopped = f"</{CODE}>" in message.content and OPEN not in message.content
            ends = index == len(trace.messages) - 1 or not stopped
            count = len(ids) + ends
            said = (*ids, chat.end_id) if ends else tuple(ids)
            book.wrote(Completion(said, (0.0,) * count, "end", (0,) * count))
        else:
            answered = list(islice(calls, responses(message.content)))
            if len(answered) < responses(message.content):
                raise DataError(
                    "a trace has more observations than calls", where=f"trace of {trace.sample_id!r}"
                )
            data = _data(trace, [message])
            results, start = [], 0  # pictures are in the order of the calls
            for call in answered:
                end = len(data) if call is answered[-1] else start + len(call.images)
                results.append((call, data[start:end]))
                start = end
            book.returned(message.content, results)
    return book


def _data(trace: Trajectory, messages: Sequence[Message]) -> list[bytes]:
    found = []
    for message in messages:
        for number in message.images:
            data = trace.images[number].data
            if data is None:
                raise DataError(f"picture {number} has no bytes", where=f"trace of {trace.sample_id!r}")
            found.append(data)
    return found
