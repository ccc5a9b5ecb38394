"""How a service VM that is there on a host differs from what is declared."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.domain import service_vm_state
from gpuclusters.domain.service_vm_state import LiveVm, WantedVm


def service_vm(want: WantedVm, live: LiveVm) -> Iterator[str]:
    """The domain, its network and its disk. Our mark and our UUID are no difference: it gets them."""
    if live.domain is None:
        return
    # What is missing altogether is made as ever.
    plan = service_vm_state.compare(want, live)
    yield from (
        f"domain: {words}" for words in plan.domain if not words.startswith(("uuid ", "our mark"))
    )
    if live.network is not None:
        yield from (f"network: {words}" for words in plan.network)
    if plan.disk and live.backing is not None:
        yield plan.disk
