"""The Tenancy controller's place in the operator: kopf brings the Tenancies, the rest is watched here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import kopf

from caas.cluster import Cluster
from caas.controllers.background import run_beside
from caas.controllers.tenancy_controller import TenancyController
from gpuclusters.tenancy.isolation import Network
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.programs import Accounts

RESTART_SECONDS = 1.0
_log = logging.getLogger(__name__)


class NoDifferences(kopf.DiffBaseStorage):
    """Kopf else copies each object several times to find differences, for which nobody asks it here."""

    def build(self, **_: Any) -> Any:
        """Nothing of the object counts."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """Nothing was kept."""
        return None

    def store(self, **_: Any) -> None:
        """Nothing is kept."""


def register(
    registry: kopf.OperatorRegistry,
    cluster: Cluster,
    network: Network,
    accounts: Accounts,
    *,
    mine: Callable[[str], bool] = lambda _name: True,
    identity: str = "",
) -> None:
    """Have an operator work on tenancies for as long as it runs.

    Args:
        registry: of the operator, which must be started by whoever leads, cluster-wide.
        cluster: entered, and kept open until the operator has ended.
        network: ranges of the cluster's own machines.
        accounts: of the cluster's programs, whose roles are bound in each tenant's namespace.
        mine: chooses tenancies by name, where several operators share a cluster.
        identity: of this program, as events name it.
    """
    controller = TenancyController(cluster, network, accounts, identity)
    run_beside(registry, "tenancies", lambda: _kept_up(controller))

    @kopf.on.startup(registry=registry, id="tenancies-storage")
    async def plain(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.persistence.diffbase_storage = NoDifferences()

    @kopf.on.event(
        TENANCY.group, TENANCY.version, TENANCY.plural, registry=registry, id="tenancy-changed"
    )
    async def changed(event: Any, **_: Any) -> None:
        body = event["object"]
        if not mine(body["metadata"]["name"]):
            return
        if event["type"] == "DELETED":
            controller.forget(body["metadata"]["name"])
        else:
            controller.observe(body)


async def _kept_up(controller: TenancyController) -> None:
    """Begin again after a fault of our own: tenancies must not stay unattended until somebody looks."""
    while True:
        try:
            await controller.run()
        except Exception:  # noqa: BLE001 - whatever it was, somebody has to go on
            _log.exception("tenancies: unexpected failure; beginning again")
            await asyncio.sleep(RESTART_SECONDS)
