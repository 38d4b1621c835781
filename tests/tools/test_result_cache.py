import asyncio

import pytest

from vtune.tools.result_cache import ResultCache


def test_concurrent_and_later_requests_get_the_same_result() -> None:
    async def main() -> None:
        once: ResultCache[list[int]] = ResultCache()
        gate = asyncio.Event()

        async def make() -> list[int]:
            await gate.wait()
            return [1]

        waiting = [asyncio.create_task(once.get("key", make)) for _ in range(5)]
        await asyncio.sleep(0)
        gate.set()
        found = await asyncio.gather(*waiting, once.get("key", make))
        assert all(one is found[0] for one in found)
        assert once.made == 1
        await once.get("other", make)
        assert once.made == 2

    asyncio.run(main())


def test_a_failure_is_passed_to_all_waiters_and_not_cached() -> None:
    async def main() -> None:
        once: ResultCache[int] = ResultCache()
        outcomes = iter([ValueError("down"), None])

        async def make() -> int:
            await asyncio.sleep(0)
            if (outcome := next(outcomes)) is not None:
                raise outcome
            return 7

        first = await asyncio.gather(once.get(1, make), once.get(1, make), return_exceptions=True)
        assert [str(one) for one in first] == ["down", "down"]
        assert await once.get(1, make) == 7

    asyncio.run(main())


def test_a_cancelled_waiter_does_not_affect_the_others() -> None:
    async def main() -> None:
        once: ResultCache[int] = ResultCache()

        async def make() -> int:
            await asyncio.sleep(0.02)
            return 7

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(once.get(1, make), 0.001)
        assert await once.get(1, make) == 7
        assert once.made == 1

    asyncio.run(main())
