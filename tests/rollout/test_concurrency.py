import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from vtune.rollout.concurrency import PrioritySemaphore


def walked(room: int, wanted: list[tuple[int, int]], *, cancelled: frozenset[int] = frozenset()) -> list[int]:
    """Let tasks (order, moments) compete for places; return their numbers in the order of admission."""
    got: list[int] = []

    async def run() -> None:
        places, inside = PrioritySemaphore(room), 0

        async def one(number: int, order: int, moments: int) -> None:
            nonlocal inside
            async with places.taken(order):
                inside += 1
                assert inside <= room
                got.append(number)
                for _ in range(moments):
                    await asyncio.sleep(0)
                inside -= 1

        tasks = [asyncio.create_task(one(n, *each)) for n, each in enumerate(wanted)]
        chance = random.Random(len(wanted))
        for number in sorted(cancelled & set(range(len(tasks)))):
            for _ in range(chance.randint(0, 3)):
                await asyncio.sleep(0)
            if number not in got:  # these tests cancel only waiting tasks
                tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # No place is lost: all can be taken again.
        async with asyncio.timeout(5):
            for _ in range(room):
                await places._take(0)

    asyncio.run(run())
    return got


@given(
    room=st.integers(1, 4),
    wanted=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=12),
    cancelled=st.frozensets(st.integers(0, 11), max_size=6),
)
def test_the_limit_is_never_exceeded_and_no_place_is_lost(
    room: int, wanted: list[tuple[int, int]], cancelled: frozenset[int]
) -> None:
    got = walked(room, wanted, cancelled=cancelled)
    assert len(got) == len(set(got))
    assert set(range(len(wanted))) - set(got) <= cancelled


def test_a_free_place_goes_to_the_oldest_step() -> None:
    wanted = [(1, 3), (1, 3), (2, 1), (1, 1), (0, 1), (0, 1), (1, 1)]
    assert walked(2, wanted) == [0, 1, 4, 5, 3, 6, 2]
