"""What decides whether a host can give its GPUs away: one script, one connection, one answer."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gpuclusters.core.errors import DeniedError, InvalidAnswerError
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import Completed, SshHost
from gpuclusters.preflight.model import Bar, HostFacts, PciFact

# From the end of the script to the end of the command: closing a channel takes some round trips.
_SLOWEST_ANSWER_SECONDS = 5.0

Lines = tuple[tuple[str, ...], ...]


class _Said(HostFacts):
    """With what is told of each PCI function in several lines."""

    format: Literal["1"]
    pci: Lines = ()
    """Address, id, class, NUMA node."""
    member: Mapping[str, str] = {}
    """Group by address; so are drivers, headers, resets and VFIO devices."""
    driver: Mapping[str, str] = {}
    header: Mapping[str, str] = {}
    reset: Mapping[str, str] = {}
    vfio_device: Mapping[str, str] = {}
    bar: Lines = ()
    """Address, number, first and last byte."""
    clock: int
    """The last line: an answer without it is not whole."""


def read_facts(
    host: SshHost, addresses: Sequence[str], *, fabric_manager: str | None = None
) -> HostFacts:
    """Everything at once; an account that may not become root is a finding like others.

    `addresses`: PCI functions whose registers are read; `fabric_manager`: address of its API, to ask its
    client for the partitions.
    """
    tried = "read what this machine is"

    def run(account: str = "") -> Completed:
        arguments = [fabric_manager or "-", *addresses]
        how: dict[str, Any] = {"after": ["vfio/vfio_users"], "repeatable": True, "account": account}
        return run_script(host, "preflight/preflight", arguments, tried=tried, **how)

    try:
        done, root = run(), True
    except DeniedError as error:
        if "sudo" not in error.problem:
            raise
        done, root = run(account=host.connection.user), False
    now = time.time()
    try:
        return parse(done.text, root=root, now=now)
    except (ValueError, IndexError) as error:
        problem = f"the answer cannot be read ({type(error).__name__}: {error})"
        remedy = "check that /bin/sh, awk, od and df on the host are the usual ones"
        raise InvalidAnswerError(host.target, tried, problem, remedy) from error


def parse(text: str, *, root: bool, now: float) -> HostFacts:
    """The facts in the answer, which arrived at `now` by our own clock; ValueError if it is not whole."""
    said = _Said.parse(text)
    ahead = said.clock - now
    if -1 - _SLOWEST_ANSWER_SECONDS <= ahead <= 0:  # its whole second and the answer's way
        ahead = 0.0
    update = {"root": root, "functions": _functions(said), "clock_offset_seconds": ahead}
    return said.model_copy(update=update)


def _functions(said: _Said) -> Mapping[str, PciFact]:
    bars: dict[str, dict[int, Bar]] = defaultdict(dict)
    for address, number, *region in said.bar:
        start, end = (int(one, 16) for one in region)
        # A region that is not there is all zeros.
        bars[address][int(number)] = Bar(start, end - start + 1 if end else 0)
    return {
        address: PciFact(
            address=address,
            pci_id=pci_id,
            class_code=class_code,
            numa_node=int(node) if int(node) >= 0 else None,
            driver=said.driver.get(address),
            iommu_group=said.member.get(address),
            header=bytes.fromhex(said.header.get(address, "")),
            bars=bars.get(address, {}),
            resettable={"yes": True, "no": False}.get(said.reset.get(address, "")),
            vfio_device=said.vfio_device.get(address),
        )
        for address, pci_id, class_code, node in said.pci
    }
