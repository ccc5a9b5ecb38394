"""What follows from what is known about one host's GPUs.

The same board at the same moment always gives the same plan, and doing a plan twice does no harm.
Whatever is not known is asked; whatever cannot be known in time closes the GPU.
"""

from __future__ import annotations

from gpuclusters.domain.lease_absence import decide_absence
from gpuclusters.domain.lease_board import Board
from gpuclusters.domain.lease_holding import decide_groups
from gpuclusters.domain.lease_plan import Draft, Plan
from gpuclusters.domain.lease_recycling import decide_recycling


def decide(board: Board, now: float) -> Plan:
    """What to store, to start and to wait for.

    Args:
        board: what is known.
        now: seconds of a clock that never jumps; the leases' deadlines are by the same clock.
    """
    draft = Draft(board, now)
    decide_groups(draft)
    decide_recycling(draft)
    decide_absence(draft)
    return draft.plan()
