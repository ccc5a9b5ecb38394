"""A node out of service, on a real API server through the SDK's provider process."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.lease.model import GPULeaseSpec, lease_object
from tests.fixtures.tenancies import LEASES, Request
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Resource

pytestmark = pytest.mark.lab
BEING_RESET = {"phase": "Resetting", "since": "2026-01-01T00:00:00Z", "cycle": 1}


@pytest.fixture
def node(lease_api: Request) -> Iterator[str]:
    """A node with one GPU's lease, which is being taken back."""
    name = f"away-{secrets.token_hex(3)}"
    lease = lease_object(GPULeaseSpec(node=name, module=1, pci="0000:0f:00.0", device="1"))
    path = f"{LEASES}/{lease['metadata']['name']}"
    lease_api.apply(f"/api/v1/nodes/{name}", "v1", "Node")
    assert lease_api("POST", LEASES, lease)[0] == 201
    lease_api.merge(f"{path}/status", {"status": BEING_RESET})
    yield name
    lease_api("DELETE", path)
    lease_api("DELETE", f"/api/v1/nodes/{name}")


def maintenance(start: StartProvider, api: Request, node: str) -> Resource:
    inputs = {"cluster": "dev", "kubeconfig": api.cluster.kubeconfig.read_text(), "node": node}
    wanted = inputs | {"drain": "wait", "timeout_seconds": 0.1}
    return start().of("NodeMaintenance", wanted)


def live(api: Request, node: str) -> dict[str, Any]:
    found = api.get(f"/api/v1/nodes/{node}")
    assert found
    return found


def test_a_node_is_out_of_service_as_long_as_the_resource_exists(
    lease_api: Request, node: str, start_provider: StartProvider
) -> None:
    away = maintenance(start_provider, lease_api, node)
    held = f"GPUs are still held after 0.1 s: {node}-gpu1 (Resetting)"
    away.refused("create", held, "`maintenance: evict`")
    assert live(lease_api, node)["spec"]["unschedulable"] is True, "what was begun is kept"

    lease_api("DELETE", f"{LEASES}/{node}-gpu1")
    made = away.create()  # the same `up` again
    assert away.id == f"dev/{node}"
    assert (made["cordoned"], made["busy"]) == (True, [])
    assert away.look().outputs == made
    assert not away.differs()

    lease_api.merge(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
    assert away.refresh().outputs["cordoned"] is False
    assert away.differs()
    away.update()
    assert live(lease_api, node)["spec"]["unschedulable"] is True

    away.delete()
    assert "unschedulable" not in live(lease_api, node)["spec"]
    assert away.look().id == ""
    away.delete()


def test_a_cordon_of_somebody_else_stays_and_a_node_that_is_not_there_is_not_made(
    lease_api: Request, node: str, start_provider: StartProvider
) -> None:
    away = maintenance(start_provider, lease_api, node)
    lease_api("DELETE", f"{LEASES}/{node}-gpu1")
    lease_api.merge(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    away.create()
    away.delete()
    assert live(lease_api, node)["spec"]["unschedulable"] is True

    away.refused("create", "the cluster has no such node", node="nobody")
    assert lease_api.get("/api/v1/nodes/nobody") is None
