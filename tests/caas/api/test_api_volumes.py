"""A container has its tenant's volumes, and nobody else's."""

from typing import Any

import pytest

from gpuclusters.container_api.request import CLOSED, MOST_VOLUMES
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import AccessMode, TenantVolume
from tests.caas.api.apikit import Api, played


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
    for one in claims:
        api.cluster.put("persistentvolumeclaims", one)
    await api.settle()


@played
async def test_a_container_gets_its_tenants_volumes_where_it_wants_them(api: Api) -> None:
    await declare(
        api, claim("acme", "data"), claim("acme", "models", mode=AccessMode.READ_ONLY_MANY)
    )
    asked = [
        {"name": "data", "path": "/data"},
        {"name": "models", "path": "/opt/models", "readOnly": True},
    ]
    answer = await api.post("acme", volumes=asked)
    assert answer.status_code == 201
    assert answer.json()["volumes"] == [
        {"name": "data", "path": "/data", "readOnly": False},
        {"name": "models", "path": "/opt/models", "readOnly": True},
    ]
    spec = api.cluster.pods[0]["spec"]
    assert spec["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": False}},
        {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
    ]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "data", "mountPath": "/data", "readOnly": False},
        {"name": "models", "mountPath": "/opt/models", "readOnly": True},
    ]


@played
async def test_a_volume_that_can_only_be_read_is_mounted_so_and_any_other_can_be(api: Api) -> None:
    await declare(
        api, claim("acme", "data"), claim("acme", "models", mode=AccessMode.READ_ONLY_MANY)
    )
    asked = [
        {"name": "data", "path": "/data", "readOnly": True},
        {"name": "models", "path": "/models"},
    ]
    told = (await api.post("acme", volumes=asked)).json()
    assert [one["readOnly"] for one in told["volumes"]] == [True, True]
    refused = await api.post(
        "acme", volumes=[{"name": "models", "path": "/models", "readOnly": False}]
    )
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
    await declare(
        api,
        claim("acme", "data", phase="Pending"),
        claim("acme", "models", mode=AccessMode.READ_ONLY_MANY),
        claim("globex", "secrets"),
        claim("acme", "own", labels={TENANT_LABEL: "globex"}),
    )
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
    await declare(
        api,
        claim("acme", "data"),
        claim("globex", "secrets"),
        claim("acme", "own", labels={TENANT_LABEL: "globex"}),
    )
    answer = await api.post("acme", volumes=[{"name": name, "path": "/data"}])
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("/volume-not-allowed")
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
    assert answer.status_code == 503
    assert answer.json()["type"].endswith("/volume-not-ready")
    assert answer.headers["Retry-After"]
    assert api.cluster.pods == []
    await declare(api, claim("acme", "data"))
    assert (await api.post("acme", volumes=asked, key="k")).status_code == 201
    # What was made is found again, whatever becomes of the volume.
    await declare(api, claim("acme", "data", phase="Lost"))
    again = await api.post("acme", volumes=asked, key="k")
    assert again.headers["Idempotency-Replayed"] == "true"
    other = await api.post("acme", volumes=[{"name": "data", "path": "/other"}], key="k")
    assert other.json()["type"].endswith("/idempotency-key-reused")


@pytest.mark.parametrize(
    ("volumes", "said"),
    [
        *(
            ([{"name": "data", "path": path}], "the system's own files")
            for path in (*CLOSED, "/usr/lib", "/dev/shm")
        ),
        ([{"name": "data", "path": "/a/../etc"}], "without . and .."),
        ([{"name": "data", "path": "/a/./b"}], "without . and .."),
        (
            [{"name": "data", "path": "/a"}, {"name": "more", "path": "/a/b"}],
            "lies over /a, where another volume is",
        ),
        (
            [{"name": "data", "path": "/a/b"}, {"name": "more", "path": "/a"}],
            "lies over /a/b, where another volume is",
        ),
        (
            [{"name": "data", "path": "/a"}, {"name": "data", "path": "/b"}],
            "the volume data is named twice",
        ),
    ],
)
@played
async def test_what_would_hide_the_system_or_another_volume_is_refused(
    api: Api, volumes: list[dict[str, Any]], said: str
) -> None:
    await declare(api, claim("acme", "data"), claim("acme", "more"))
    answer = await api.post("acme", volumes=volumes)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert api.cluster.pods == []


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "data"},
        {"path": "/data"},
        {"name": "data", "path": "data"},
        {"name": "data", "path": "/"},
        {"name": "data", "path": "/data/"},
        {"name": "data", "path": "/da//ta"},
        {"name": "data", "path": "/da:ta"},
        {"name": "data", "path": "/data\n"},
        {"name": "data", "path": "/" + "x" * 256},
        {"name": "Data", "path": "/data"},
        {"name": "data", "path": "/data", "readOnly": "yes"},
        {"name": "data", "path": "/data", "subPath": ".."},
        {"name": "data", "path": "/data", "server": "192.0.2.7"},
    ],
)
@played
async def test_what_no_volume_can_be_is_an_invalid_request(
    api: Api, volume: dict[str, Any]
) -> None:
    await declare(api, claim("acme", "data"))
    answer = await api.post("acme", volumes=[volume])
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("/invalid-request")
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
    answer = await api.post("acme", volumes=many)
    assert answer.json()["type"].endswith("/invalid-request")
