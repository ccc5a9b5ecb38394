"""A container has its tenant's volumes, and nobody else's."""

from typing import Any

import pytest

from gpuclusters.container_api.request import CLOSED, MOST_VOLUMES
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import AccessMode, TenantVolume
from tests.caas.api.apikit import CASES, Api, kind, played


def claim(
    tenant: str,
    name: str,
    *,
    mode: AccessMode = AccessMode.READ_WRITE_MANY,
    phase: str = "Bound",
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A claim as the stack declares it."""
    namespace = f"tenant-{tenant}"
    volume = TenantVolume(
        tenant=tenant, namespace=namespace, name=name, server="192.0.2.7", path=f"/export/{name}",
        size_gib=100, mode=mode,
    )  # fmt: skip
    given = {TENANT_LABEL: tenant} if labels is None else labels
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": given},
        "spec": volume.claim_spec(),
        "status": {"phase": phase},
    }


async def declare(api: Api, *claims: dict[str, Any]) -> None:
    await api.happens("persistentvolumeclaims", *claims)


MODELS = claim("acme", "models", mode=AccessMode.READ_ONLY_MANY)
OF_OTHERS = (
    claim("globex", "secrets"),
    claim("acme", "own", labels={TENANT_LABEL: "globex"}),
)


@played
async def test_a_container_gets_its_tenants_volumes_where_it_wants_them(api: Api) -> None:
    await declare(api, claim("acme", "data"), MODELS)
    for asked, read_only in (
        ([{"path": "/data"}, {"path": "/opt/models", "readOnly": True}], [False, True]),
        ([{"path": "/data", "readOnly": True}, {"path": "/models"}], [True, True]),
    ):
        volumes = [
            {"name": name, **one} for name, one in zip(("data", "models"), asked, strict=True)
        ]
        answer = await api.post("acme", volumes=volumes)
        assert answer.status_code == 201
        wanted = [{**one, "readOnly": only} for one, only in zip(volumes, read_only, strict=True)]
        assert answer.json()["volumes"] == wanted
        (pod,) = (p for p in api.cluster.pods if p["metadata"]["name"] == answer.json()["id"])
        assert pod["spec"]["volumes"] == [
            {
                "name": one["name"],
                "persistentVolumeClaim": {"claimName": one["name"], "readOnly": one["readOnly"]},
            }
            for one in wanted
        ]
        assert pod["spec"]["containers"][0]["volumeMounts"] == [
            {"name": one["name"], "mountPath": one["path"], "readOnly": one["readOnly"]}
            for one in wanted
        ]


@played
async def test_a_volume_that_can_only_be_read_is_mounted_so_or_not_at_all(api: Api) -> None:
    await declare(api, MODELS)
    writable = {"name": "models", "path": "/models", "readOnly": False}
    refused = await api.post("acme", volumes=[writable])
    assert refused.status_code == 409
    assert refused.json()["errors"] == [
        {
            "field": "body.volumes.0.readOnly",
            "message": "the volume models can only be read; leave readOnly out",
        }
    ]


@played
async def test_the_tenancy_tells_its_volumes_and_no_others(api: Api) -> None:
    assert (await api.get("acme", "/v1/tenancy")).json()["volumes"] == []
    await declare(api, claim("acme", "data", phase="Pending"), MODELS, *OF_OTHERS)
    answer = await api.get("acme", "/v1/tenancy")
    assert answer.json()["volumes"] == [
        {"name": "data", "sizeGib": 100, "readOnly": False, "ready": False},
        {"name": "models", "sizeGib": 100, "readOnly": True, "ready": True},
    ]
    assert "192.0.2.7" not in answer.text
    assert "/export" not in answer.text


@pytest.mark.parametrize("name", ["secrets", "own", "never-there"])
@played
async def test_volumes_of_others_do_not_exist(api: Api, name: str) -> None:
    await declare(api, claim("acme", "data"), *OF_OTHERS)
    answer = await api.post("acme", volumes=[{"name": name, "path": "/data"}])
    assert kind(answer) == "409 volume-not-allowed"
    # The same words for what is another tenant's and for what never was.
    assert answer.json()["detail"] == (
        f"body.volumes.0.name: the tenant has no volume {name}; its volumes: data"
    )
    assert api.cluster.pods == []


@played
async def test_a_volume_that_is_not_bound_yet_would_hold_gpus_for_nothing(api: Api) -> None:
    await declare(api, claim("acme", "data", phase="Pending"))
    asked = [{"name": "data", "path": "/data"}]
    answer = await api.post("acme", volumes=asked, key="k")
    assert kind(answer) == "503 volume-not-ready"
    assert answer.headers["Retry-After"]
    assert api.cluster.pods == []
    await declare(api, claim("acme", "data"))
    assert (await api.post("acme", volumes=asked, key="k")).status_code == 201
    # What was made is found again, whatever becomes of the volume.
    await declare(api, claim("acme", "data", phase="Lost"))
    again = await api.post("acme", volumes=asked, key="k")
    assert again.headers["Idempotency-Replayed"] == "true"
    other = await api.post("acme", volumes=[{"name": "data", "path": "/other"}], key="k")
    assert kind(other) == "422 idempotency-key-reused"


@pytest.mark.parametrize(
    ("volumes", "said"),
    [*(([{"path": path}], "the system's own files") for path in CLOSED), *CASES["volumes"]],
)
@played
async def test_what_no_volume_can_be_or_hides_the_system_or_another_is_refused(
    api: Api, volumes: list[dict[str, Any]], said: str
) -> None:
    await declare(api, claim("acme", "data"), claim("acme", "more"))
    answer = await api.post("acme", volumes=[{"name": "data", **one} for one in volumes])
    assert kind(answer) == "422 invalid-request"
    assert said in answer.json()["detail"]
    assert api.cluster.pods == []


@played
async def test_all_faults_are_told_at_once_and_volumes_are_counted(api: Api) -> None:
    for fields, asked in (
        (("0.path", "1.path"), [("data", "/etc"), ("none", "/usr")]),
        (("0.name", "1.name"), [("data", "/a"), ("none", "/b")]),
    ):
        volumes = [{"name": name, "path": path} for name, path in asked]
        errors = (await api.post("acme", volumes=volumes)).json()["errors"]
        assert [error["field"] for error in errors] == [f"body.volumes.{f}" for f in fields]
    many = [{"name": f"v{n}", "path": f"/v{n}"} for n in range(MOST_VOLUMES + 1)]
    assert kind(await api.post("acme", volumes=many)) == "422 invalid-request"
