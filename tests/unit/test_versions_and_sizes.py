"""Versions are compared as numbers; sizes follow measurements, spelled as Kubernetes spells them."""

from __future__ import annotations

import pytest

from gpuclusters.compat.versions import older, parse_release
from gpuclusters.core import quantity
from gpuclusters.core.naming import is_dns_label, is_reserved_namespace
from gpuclusters.tenancy.model import Share, Size, quota_keys
from tests.fixtures.tables import beside

CASES = beside(__file__, "versions_and_sizes.yaml")


@pytest.mark.parametrize(("text", "release"), CASES["releases"].items())
def test_a_version_is_its_numbers_or_not_pinned(text: str, release: list[int] | None) -> None:
    assert parse_release(text) == (release and tuple(release))


def test_versions_are_compared_by_number_and_not_by_letter() -> None:
    assert older("6.8.0", (6, 12))
    assert not older("6.12.0", (6, 12))
    assert not older("10.0", (9, 2))
    assert not older("latest", (9, 2))


@pytest.mark.parametrize(("name", "right"), CASES["labels"].items())
def test_a_label_is_what_kubernetes_takes(name: str, right: bool) -> None:
    assert is_dns_label(name) is right


def test_namespaces_of_the_cluster_are_reserved() -> None:
    for name in ("kube-system", "kube-anything", "default", "kata-system", "gpu-operator"):
        assert is_reserved_namespace(name)
    assert not is_reserved_namespace("tenant-acme")


SHARE = Share(
    gpus=4,
    total=Size(96, 768, 512),
    storage_gib=100,
    claims=2,
    default_container=Size(8, 64, 16),
    max_container=Size(95, 758, 512),
)


def test_a_quota_counts_gpus_under_requests_alone() -> None:
    quota = SHARE.quota("nvidia.com/pgpu", {"count/pods": "9"})
    assert quota["requests.nvidia.com/pgpu"] == "4"
    assert [key for key in quota if "nvidia" in key] == ["requests.nvidia.com/pgpu"]
    assert quota["services.nodeports"] == "0"
    assert quota["requests.ephemeral-storage"] == quota["limits.ephemeral-storage"] == "512Gi"
    assert (quota["persistentvolumeclaims"], quota["requests.storage"]) == ("2", "100Gi")
    assert set(quota) == quota_keys("nvidia.com/pgpu") | {"count/pods"}


def test_limits_have_defaults_because_a_quota_refuses_pods_that_state_none() -> None:
    (paged,) = SHARE.limits(huge_pages=True)
    disk = {"ephemeral-storage": "16Gi"}
    assert paged["default"] == {"cpu": "8", "memory": "64Gi", "hugepages-1Gi": "64Gi"} | disk
    assert paged["defaultRequest"] == {"cpu": "8", "memory": "1Gi", "hugepages-1Gi": "64Gi"} | disk
    (limit,) = SHARE.limits()
    assert limit["default"] == limit["defaultRequest"] == {"cpu": "8", "memory": "64Gi"} | disk
    assert limit["max"] == {"cpu": "95", "memory": "758Gi", "ephemeral-storage": "512Gi"}


@pytest.mark.parametrize(("millicores", "text"), [(1000, "1"), (1500, "1500m"), (250, "250m")])
def test_cpu_is_spelled_as_kubernetes_spells_it(millicores: int, text: str) -> None:
    assert quantity.cpu(millicores) == text


def test_amounts_are_equal_however_they_are_spelled() -> None:
    written = {"cpu": "1", "memory": "1Gi", "count": "2000"}
    assert quantity.same_quantities(written, {"cpu": "1000m", "memory": "1024Mi", "count": "2k"})
    assert not quantity.same_quantities(written, {**written, "memory": "1G"})
    assert not quantity.same_quantities({"a": "1"}, {"a": "1", "b": "1"})
    fractions = {"cpu": "500m", "memory": "1.5", "count": "1e3"}
    assert quantity.same_quantities(fractions, {"cpu": "0.5", "memory": "1500m", "count": "1k"})
    with pytest.raises(ValueError, match="no Kubernetes quantity"):
        quantity.parse_quantity("four")


@pytest.mark.parametrize(("mib", "text"), [(10240, "10Gi"), (1536, "1536Mi"), (320, "320Mi")])
def test_memory_is_spelled_as_kubernetes_spells_it(mib: int, text: str) -> None:
    assert quantity.memory(mib) == text
