"""A pool of workers that share one queue of requests."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from vtune.errors import ServiceError
from vtune.verifiers.worker import Question, Worker, called, tell

Leave = Callable[[Sequence[Question]], None]


class WorkerPool:
    """Deals questions to workers in order.

    Args:
        made: The workers, given whom they tell that they have room.
        ahead: Questions that a worker has at most, with the one that it is at.
    """

    def __init__(self, made: Callable[[Leave], list[Worker]], *, ahead: int) -> None:
        self.waiting: deque[Question] = deque()
        self.workers = made(self._take_back)
        self._ahead = ahead

    def ask(self, question: Question) -> None:
        """Have a worker verify a reply as soon as one has room."""
        self.waiting.append(question)
        self._deal()

    def give_up(self, question: Question) -> None:
        """Leave a reply unscored if no worker has had room for it yet."""
        if question in self.waiting:
            self.waiting.remove(question)
            why = "too many replies that take long to verify wait already, as does this one"
            tell(question.verdict, ServiceError(f"{why} for {called(question.verifier)}"))

    def stop(self) -> None:
        """End all processes; who waits for them waits no longer."""
        for worker in self.workers:
            worker.stop()
        for question in self.waiting:
            question.verdict.cancel()

    def _deal(self) -> None:
        """Give what waits to the workers that have least to do, of those that run or can be started."""
        able = list(self.workers)
        while self.waiting:
            worker = min(able, key=lambda one: len(one.asked))
            if len(worker.asked) >= self._ahead:
                return
            question = self.waiting.popleft()
            if question.verdict.done():
                continue  # nobody waits for it any more
            try:
                worker.ask(question)
            except OSError as error:
                able.remove(worker)
                if able:
                    self.waiting.appendleft(question)
                else:
                    tell(question.verdict, ServiceError(f"no worker can be started: {error}"))
                    able = list(self.workers)

    def _take_back(self, questions: Sequence[Question]) -> None:
        """A worker has room again; it leaves some questions untouched."""
        self.waiting.extendleft(reversed(questions))
        self._deal()
        self._help()

    def _help(self) -> None:
        """Have an idle worker verify a reply that waits at another, whose first may take long.

        Each reply is copied once at most, the last in a line first, for its own worker comes to it last.
        """
        idle = next((one for one in self.workers if not one.asked), None)
        if idle is None:
            return
        behind = [question for one in self.workers for question in list(one.asked)[:0:-1]]
        question = next((one for one in behind if not (one.copied or one.verdict.done())), None)
        if question is None:
            return
        question.copied = True
        with suppress(OSError):  # it cannot be started: the reply stays where it waits
            idle.ask(question)
