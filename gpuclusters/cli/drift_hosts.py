"""`drift`: every machine at once, over one connection each, and its firmware past it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from caas.controllers.redfish import Redfish, RedfishError
from gpuclusters.cli.drift_engine import Found
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.inventory import Inventory
from gpuclusters.config.plan import board
from gpuclusters.core.errors import (
    AdapterError,
    DeniedError,
    HostKeyMismatchError,
    UnreachableError,
)
from gpuclusters.drift import host_look, hosts
from gpuclusters.drift.expected import Expected
from gpuclusters.drift.finding import Finding, Unseen
from gpuclusters.drift.report import Looked
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.review.text import plural

_AT_ONCE = 64
_RESOURCE = re.compile(r"resource (\S+)")


def look(machines: Mapping[str, HostConnection], credentials: SshCredentials) -> Found:
    """Machines in parallel; one that does not answer is a finding, and hides nothing of the others."""
    with ThreadPoolExecutor(max(1, min(len(machines), _AT_ONCE))) as pool:
        found = Found(looked=(Looked("machines", 0),))
        seen = 0
        for part in pool.map(lambda name: _one(name, machines[name], credentials), machines):
            found = found.joined(part)
            seen += not part.unseen
    return Found(found.findings, found.unseen, (Looked("machines", seen),))


def _one(name: str, connection: HostConnection, credentials: SshCredentials) -> Found:
    try:
        seen = host_look.look(SshHost(connection, credentials, connect_attempts=1))
    except (UnreachableError, HostKeyMismatchError, DeniedError) as error:
        finding = hosts.unreached(name, error.error_id, error.problem, error.remedy)
        return Found((finding,), (_unseen(name, error),))
    except AdapterError as error:
        return Found(unseen=(_unseen(name, error),))
    return Found(tuple(hosts.findings(name, seen)))


def _unseen(name: str, error: AdapterError) -> Unseen:
    return Unseen(f"machine {name}", error.problem, error.remedy)


def without_repeats(found: Found) -> Found:
    """With one line for a machine that was not reached, instead of one for each resource on it."""
    gone = {f.where for f in found.findings if f.id in _UNREACHED}
    if not gone:
        return found
    kept: list[Unseen] = []
    counts = dict.fromkeys(sorted(gone), 0)
    for unseen in found.unseen:
        host = next((h for h in gone if unseen.why.startswith(f"{h} (")), None)
        if host is not None and _RESOURCE.match(unseen.what):
            counts[host] += 1
        else:
            kept.append(unseen)
    told = [
        Unseen(f"{plural(count, 'resource')} on {host}", "the machine was not reached")
        for host, count in counts.items()
        if count
    ]
    return Found(found.findings, (*kept, *told), found.looked)


_UNREACHED = {"host.unreachable", "host.key-changed", "host.refuses"}


def firmware(
    config: CaasConfig, expected: Expected, inventory: Inventory | None, password: str | None
) -> Found:
    """What the management controllers say of the firmware of every machine."""
    if password is None:
        why = "the stack's secret bmc-password is not set, or cannot be opened"
        return Found(unseen=(Unseen("firmware", why),))
    return asyncio.run(_firmware(config, expected, inventory, password))


async def _firmware(
    config: CaasConfig, expected: Expected, inventory: Inventory | None, password: str
) -> Found:
    parts = await asyncio.gather(
        *(
            _inventory(node.name, tuple(board(config, node).gpus), address, expected, password)
            for node in config.nodes
            if (address := _bmc(config, node.name, inventory)) is not None
        )
    )
    found = Found()
    for part in parts:
        found = found.joined(part)
    asked = sum(not part.unseen for part in parts)
    return Found(found.findings, found.unseen, (Looked("firmware inventories", asked),))


def _bmc(
    config: CaasConfig, name: str, inventory: Inventory | None
) -> tuple[str, str, str | None] | None:
    """URL, user and pinned certificate of a machine's management controller."""
    if inventory is not None:
        known = inventory.hosts.get(name)
        bmc = known.bmc if known else None
        return (bmc.url, bmc.user, bmc.certificate) if bmc else None
    for node in config.nodes:
        if node.name == name and node.bmc is not None:
            return (str(node.bmc.url), node.bmc.user, node.bmc.certificate)
    return None


async def _inventory(
    host: str,
    modules: Sequence[int],
    bmc: tuple[str, str, str | None],
    expected: Expected,
    password: str,
) -> Found:
    url, user, certificate = bmc
    redfish = Redfish(url, user, password, certificate)
    seen: dict[str, str | None] = {}
    try:
        for module in modules:
            seen |= await redfish.inventory(module, list(expected.firmware))
    except RedfishError as error:
        return Found(unseen=(Unseen(f"firmware of {host}", str(error)),))
    finally:
        await redfish.close()
    findings: list[Finding] = list(hosts.firmware(host, modules, expected.firmware, seen))
    return Found(tuple(findings))
