"""A process of a tensor-parallel group without its own vLLM: the first one's generates on its GPU too."""

from vtune.models.device import release_cache
from vtune.models.pictures import Pixels
from vtune.models.policy import Policy
from vtune.rollout.engine import Completion, Engine, Request, Weights
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.submission import Kept, Submissions
from vtune.rollout.tensor_parallel import KEPT, Shown, TensorParallelGroup, Turn, TurnClient
from vtune.rollout.vllm_senders import HandleSender


class TensorParallelEngine(Engine):
    """Requests turns from the first process of its tensor-parallel group, and sends its share of the weights.

    Args:
        policy: Tokens and pictures.
        tp_group: This process's group.
        waiting: Covered while something is generated.
    """

    def __init__(
        self, policy: Policy, tp_group: TensorParallelGroup, *, waiting: Stopwatch | None = None
    ) -> None:
        self._policy = policy
        self._tp_group = tp_group
        self._stopwatch = waiting or Stopwatch()
        self._submissions = Submissions(policy)
        self._pictures: Kept[Shown] = Kept(KEPT, lambda shown: len(shown[1]))
        self._sender = HandleSender(policy, policy.device, tp_group)
        self._client = TurnClient(tp_group.address)

    async def generate(self, request: Request) -> Completion:
        """Generate one turn.

        Raises:
            RunFailed: If the group's vLLM has died.
        """
        with self._stopwatch.covered():
            turn = Turn(
                name="-".join(map(str, request.key)),
                token_ids=self._submissions.prompt(request),
                images=tuple([await self._pictures.of(pixels, self._made) for pixels in request.pixels]),
                names=tuple(pixels.name for pixels in request.pixels),
                sampling=self._submissions.sampling(request),
            )
            return self._submissions.completion(request, await self._client.ask(turn))

    async def take(self, weights: Weights, version: int) -> None:
        """Send this GPU's weight handles, in step with the first process (`VllmEngine.take`)."""
        self._client.forget()
        release_cache(self._policy.device)
        await self._tp_group.barrier()
        await self._tp_group.barrier()  # the first process wakes vLLM's weights
        await self._tp_group.barrier(self._sender.send(weights, None, ""))
        release_cache(self._policy.device)
        await self._tp_group.barrier()
        await self._tp_group.barrier()  # the first process wakes vLLM's KV cache
        await self._client.open()

    async def rest(self) -> None:
        """The whole group has finished generating; vLLM releases this GPU's memory too."""
        await self._tp_group.barrier()
        await self._tp_group.barrier()  # the first process puts vLLM to sleep

    async def aclose(self) -> None:
        """Close the connection."""
        await self._client.close()
        self._sender.close()
        self._tp_group.close()

    async def _made(self, pixels: Pixels) -> Shown:
        return await self._policy.pictures.beside(self._shown, pixels)

    def _shown(self, pixels: Pixels) -> Shown:
        picture = self._policy.pictures.shown(pixels).convert("RGB")
        return picture.size, picture.tobytes()
