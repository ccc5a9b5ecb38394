"""The controllers of tenancies and leases: `python -m caas.controllers`; of several copies one leads.

One that has led and does not any more ends at once: what it began is safe to begin again.
"""

import asyncio
import contextlib
import logging
import os

from caas import metrics
from caas.cluster import Cluster
from caas.controllers import leases
from caas.controllers.tenancy import TenancyController
from caas.leader import Leader
from caas.program import Health, ended, pod_address, run, told_to_stop
from caas.settings import Settings, load, secret
from gpuclusters.tenancy.programs import Program

ELECTION = "gpu-clusters-controllers"
PORT = 8081
STOP_SECONDS = 2.5
"""How long a stop may take; what has not ended by then is cut off, as by a crash."""
_LOG = logging.getLogger("caas.controllers")


async def _run() -> int:
    """Run until told to end; exit code 1 when leadership was lost."""
    settings, private_key = load(), secret("ssh-private-key")
    stopping = told_to_stop()
    identity = os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"
    async with (
        Cluster() as cluster,
        # It leads or stands by from now on.
        Health(pod_address(), PORT, metrics.CONTROLLERS),
    ):
        home = settings.accounts.namespace(Program.CONTROLLERS)
        leader = Leader(cluster, home, ELECTION, identity)
        metrics.LEADER.labels(identity).set(0)
        acquiring = asyncio.create_task(leader.acquire())
        await asyncio.wait({stopping, acquiring}, return_when=asyncio.FIRST_COMPLETED)
        if not acquiring.done():
            await ended(acquiring)
            return 0
        acquiring.result()
        metrics.LEADER.labels(identity).set(1)
        return await _lead(settings, private_key, cluster, leader, stopping)


async def _lead(
    settings: Settings,
    private_key: str,
    cluster: Cluster,
    leader: Leader,
    stopping: asyncio.Task[bool],
) -> int:
    told = (settings.network, settings.accounts, leader.identity, settings.on_demand)
    of_tenancies = TenancyController(cluster, *told)
    effects = leases.effects_over_ssh(private_key, lambda: secret("bmc-password"))
    of_leases = leases.LeaseController(
        cluster, settings, effects, identity=leader.identity, fence=leader.check
    )

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(of_tenancies.run())
            group.create_task(of_leases.run())

    working = asyncio.create_task(work())
    keeping = asyncio.create_task(leader.keep())
    await asyncio.wait({working, keeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if keeping.done():
        # Others may act by now: not even a cleanup is ours to do.
        _LOG.error("leadership lost; ending")
        os._exit(1)
    working.cancel()
    await asyncio.wait({working}, timeout=STOP_SECONDS)
    keeping.cancel()
    if not working.done():
        # What it still does is safe to be cut off; leadership is not released, others wait for its end.
        _LOG.warning("not everything ended in time; cutting off")
        os._exit(0)
    await leader.release()
    with contextlib.suppress(asyncio.CancelledError):
        await working
    return 0


if __name__ == "__main__":
    run(_run)
