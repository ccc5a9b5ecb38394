"""How much memory processes of the lab take, alone or with all that they have started."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import psutil


def of_process(pid: int | None) -> int:
    """Resident bytes of a process by itself; 0 of none, and of one that is gone."""
    if pid is None:
        return 0
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def of_trees(roots: Iterable[int]) -> Mapping[int, int]:
    """Resident bytes of each of these processes and of all below it; 0 of one that is gone.

    Programs of a node are all below its first process, which is the one that orphans get for a parent.
    """
    resident: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    # One look at the machine's processes, however many are asked for.
    for process in psutil.process_iter(["ppid", "memory_info"]):
        # Without the right to look at a process nothing is known of it.
        if process.info["memory_info"] is not None:
            resident[process.pid] = process.info["memory_info"].rss
        children[process.info["ppid"]].append(process.pid)

    def total(pid: int) -> int:
        return resident.get(pid, 0) + sum(map(total, children.get(pid, ())))

    return {root: total(root) for root in roots}
