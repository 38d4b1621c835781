"""A pool of workers that share one queue of requests."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from vtune.errors import ServiceError
from vtune.verifiers.worker import Question, Worker, called, tell

Leave = Callable[[Sequence[Question]], None]


class WorkerPool:
    """Distributes questions to workers in order.

    Args:
        made: Creates the workers, given the function that they call when they have room.
        ahead: Limit on the questions per worker, including the one in progress.
    """

    def __init__(self, made: Callable[[Leave], list[Worker]], *, ahead: int) -> None:
        self.waiting: deque[Question] = deque()
        self.workers = made(self._take_back)
        self._ahead = ahead

    def ask(self, question: Question) -> None:
        """Queue a reply until a worker has room."""
        self.waiting.append(question)
        self._deal()

    def give_up(self, question: Question) -> None:
        """Leave a reply unscored if no worker has taken it yet."""
        if question in self.waiting:
            self.waiting.remove(question)
            why = "too many replies that take long to verify are waiting, this one among them"
            tell(question.verdict, ServiceError(f"{why} for {called(question.verifier)}"))

    def stop(self) -> None:
        """Kill all processes; waiting callers are cancelled."""
        for worker in self.workers:
            worker.stop()
        for question in self.waiting:
            question.verdict.cancel()

    def _deal(self) -> None:
        """Give waiting questions to the least busy workers, among those that run or can be started."""
        able = list(self.workers)
        while self.waiting:
            worker = min(able, key=lambda one: len(one.asked))
            if len(worker.asked) >= self._ahead:
                return
            question = self.waiting.popleft()
            if question.verdict.done():
                continue  # nobody is waiting for it any more
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
        """A worker has room again; it returns questions that it has not started."""
        self.waiting.extendleft(reversed(questions))
        self._deal()
        self._help()

    def _help(self) -> None:
        """Have an idle worker verify a reply queued at another one, whose current reply may take long.

        Each reply is copied at most once; the last in a queue goes first: its own worker reaches it last.
        """
        idle = next((one for one in self.workers if not one.asked), None)
        if idle is None:
            return
        behind = [question for one in self.workers for question in list(one.asked)[:0:-1]]
        question = next((one for one in behind if not (one.copied or one.verdict.done())), None)
        if question is None:
            return
        question.copied = True
        with suppress(OSError):  # if it cannot be started, the reply stays where it is
            idle.ask(question)
