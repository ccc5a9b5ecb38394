"""As many of our steps at a time as the engine asks for.

The SDK's process for dynamic providers answers four calls at a time (`pulumi/dynamic/__main__.py`, SDK
3.272: `ThreadPoolExecutor(max_workers=4)`), whatever `--parallel` says. Four machines of a hundred would
be prepared at a time, and each may take the minutes of a reboot. There is no option for it, so the pool
is found by way of the thread that it runs us in, and given more room. Where it is not found, in another
process or after the SDK has changed, steps work as before, four at a time.
"""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

STEPS = 256
"""More than any `--parallel` that one computer's engine is given; a thread costs memory only once used."""

_done = threading.Event()


def make_room() -> None:
    """Let the pool that this thread works for run `STEPS` calls at a time. Cheap when done before."""
    if _done.is_set():
        return
    _done.set()
    # By name: the first thread of a pool runs before the pool has noted that it has it.
    mine = threading.current_thread().name.rpartition("_")[0]
    for pool in gc.get_objects():
        if type(pool) is ThreadPoolExecutor and mine == pool._thread_name_prefix:
            pool._max_workers = max(pool._max_workers, STEPS)
            for _ in range(pool._work_queue.qsize()):  # calls that wait already
                pool._adjust_thread_count()
            return
