"""The queue's own rhythm."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from caas.controllers.lease_queue import LeaseQueue
from gpuclusters.domain.fair_share import Grant

LOOK_SECONDS = 0.02
LOOKS = 5


class Timed(LeaseQueue):
    """A queue over so many GPUs that a look at them takes its time."""

    looks = 0
    busy = 0.0
    enough = asyncio.Event()

    def turns(self) -> tuple[Grant, ...]:
        if self.looks == LOOKS:
            self.enough.set()
            return ()
        began = time.monotonic()
        time.sleep(LOOK_SECONDS)
        self.looks += 1
        self.busy += time.monotonic() - began
        return super().turns()


def test_a_queue_over_gpus_that_never_stop_changing_leaves_most_of_the_time_to_others() -> None:
    async def story() -> None:
        recorder: Any = None
        queue = Timed({}, lambda _: None, recorder, "nvidia.com/pgpu")
        began = time.monotonic()
        running = asyncio.create_task(queue.run())
        async with asyncio.timeout(60):
            while not queue.enough.is_set():
                queue.look()
                await asyncio.sleep(0.001)
        assert queue.looks == LOOKS
        assert queue.busy < 0.4 * (time.monotonic() - began)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(story())
