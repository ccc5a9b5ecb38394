"""One event loop beside the gRPC threads, so that any running command can be stopped."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from engine.answers import ProviderError
from engine.stand_ins.calls import Cancelled

_Result = TypeVar("_Result")


class Background:
    """Runs coroutines for threads; `cancel` ends all that run and refuses new ones."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[concurrent.futures.Future[Any]] = set()
        self._lock = threading.Lock()
        self._cancelled = False
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, _Result], *, seconds: float, what: str) -> _Result:
        """The result of `work`.

        Args:
            work: what to run.
            seconds: time it may take; 0 for any time.
            what: how messages call it.

        Raises:
            Cancelled: the engine asked to stop.
            ProviderError: the time is over.
        """
        with self._lock:
            if self._cancelled:
                work.close()
                raise Cancelled(f"{what} was not started: the run was cancelled")
            future = asyncio.run_coroutine_threadsafe(_bounded(work, seconds), self._loop)
            self._tasks.add(future)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Cancelled(f"{what} was stopped: the run was cancelled") from None
        except TimeoutError as error:
            raise ProviderError(
                f"{what} did not end within {seconds:g} s and was stopped; "
                "give it more time with custom_timeouts, or find out what it waits for"
            ) from error
        finally:
            with self._lock:
                self._tasks.discard(future)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            tasks = list(self._tasks)
        for task in tasks:
            task.cancel()


async def _bounded(work: Coroutine[Any, Any, _Result], seconds: float) -> _Result:
    return await asyncio.wait_for(work, seconds or None)
