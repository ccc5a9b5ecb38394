"""The API on a real API server: its quota, its names, its policies decide."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from caas.cluster import Cluster
from gpuclusters.container_api.container import CONTAINER_LABEL
from tests.caas.api.apikit import PATIENCE_SECONDS, Api, FakeIssuer, kind, served
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tenancies import Operator, Request, Tenants

pytestmark = pytest.mark.lab


def play(
    cluster: KubeCluster, act: Callable[..., Awaitable[None]], copies: int = 1, **api: Any
) -> None:
    """Run a test against so many copies of the API."""

    async def run() -> None:
        issuer = FakeIssuer()
        async with AsyncExitStack() as stack:
            apis = []
            for _ in range(copies):
                connected = await stack.enter_async_context(Cluster(cluster.kubeconfig))
                # A machine that pauses must not look like a cluster that is away.
                patient = {"kube_seconds": PATIENCE_SECONDS}
                one = await stack.enter_async_context(served(connected, issuer, patient, **api))
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while await one.condition.waits_for():
                        await asyncio.sleep(0.02)
                apis.append(one)
            await act(*apis)

    asyncio.run(run())


def pods(request: Request, tenant: str) -> list[dict[str, Any]]:
    found = request.get(f"/api/v1/namespaces/{tenant}/pods?labelSelector={CONTAINER_LABEL}")
    assert found is not None
    return list(found["items"])


def test_the_quota_is_the_clusters_and_is_kept_to_the_last_gpu(
    kube_api: KubeCluster, lease_api: Request, tenants: Tenants, operator: Operator
) -> None:
    # With 4 GPUs each, in sizes 1 and 2.
    pair = tenants.make(), tenants.make()
    for tenant in pair:
        tenants.ready(tenant)

    async def act(api: Api, other: Api) -> None:
        asked = [(api, other)[n % 2].post(pair[0]) for n in range(24)]
        answers = await asyncio.gather(*asked)
        kinds = Counter("201" if one.status_code == 201 else kind(one) for one in answers)
        assert kinds == {"201": 4, "409 quota-exceeded": 20}
        assert len(pods(lease_api, pair[0])) == 4
        refused = next(one.json() for one in answers if one.status_code == 409)
        assert refused["allowed"]["requests.nvidia.com/pgpu"] == "4"
        # Another tenant's quota is untouched.
        assert (await api.post(pair[1])).status_code == 201
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (told := (await api.get(pair[0], "/v1/tenancy")).json())["gpus"]["used"] != 4:
                await asyncio.sleep(0.05)
        assert told["gpus"] == {"quota": 4, "used": 4}
        assert told["gpuSizes"] == [1, 2]

    play(kube_api, act, copies=2)


@pytest.mark.attack(
    by="a tenant",
    tries="have the disk of a whole machine, at once or by many containers",
    stopped_by="maximum and default of a container's disk in the LimitRange, the sum in the quota",
)
def test_a_containers_disk_is_bounded_and_counted(
    kube_api: KubeCluster, lease_api: Request, tenants: Tenants, operator: Operator
) -> None:
    default = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}
    hard = {"requests.nvidia.com/pgpu": "4", "pods": "10"}
    tenant = tenants.make(
        quota={
            "hard": hard | {"requests.ephemeral-storage": "6Gi", "limits.ephemeral-storage": "6Gi"}
        },
        limits=[
            {
                "type": "Container",
                "default": default,
                "defaultRequest": default,
                "max": {"ephemeral-storage": "4Gi"},
            }
        ],
    )
    tenants.ready(tenant)

    async def act(api: Api) -> None:
        for asked in (5, 65_536):
            refused = await api.post(tenant, storageGib=asked)
            assert kind(refused) == "422 limit-exceeded"
            assert (
                "maximum ephemeral-storage usage per Container is 4Gi" in refused.json()["detail"]
            )
        assert (await api.post(tenant)).json()["storageGib"] == 2
        assert (await api.post(tenant, storageGib=4)).status_code == 201
        full = await api.post(tenant)
        assert kind(full) == "409 quota-exceeded"
        assert "ephemeral-storage" in full.json()["detail"]
        (one, other) = pods(lease_api, tenant)
        for pod in (one, other):
            resources = pod["spec"]["containers"][0]["resources"]
            assert resources["requests"]["ephemeral-storage"] in ("2Gi", "4Gi")
            assert resources["limits"] == resources["requests"]

    play(kube_api, act)
