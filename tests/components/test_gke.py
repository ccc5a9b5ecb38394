"""A managed cluster as a component: who may reach it, as whom nodes act, what makes it anew."""

from typing import Any

import pulumi
import pytest

from components.gke import GkeCluster
from gpuclusters.config import gke_plan
from gpuclusters.config.gke import GkeConfig
from tests.components.recorder import Recorder, record
from tests.unit.config.documents import ClusterType as Type
from tests.unit.config.documents import base, patched

SECTION: dict[str, Any] = base(Type.GKE)["gke"]


def declared(seen: list[Any] | None = None, *, preview: bool = False, **changes: Any) -> Recorder:
    keys = {key.replace("_", "-"): value for key, value in changes.items()}
    config = GkeConfig.model_validate(patched(SECTION, keys))

    def program() -> None:
        made = GkeCluster("study", plan=gke_plan.plan(config, "p-s"))
        if seen is not None:
            pulumi.Output.from_input(made.kubeconfig).apply(seen.append)

    return record(program, preview=preview)


def cluster(**changes: Any) -> dict[str, Any]:
    (found,) = declared(**changes).of("container/cluster:Cluster").values()
    return found


def pool(name: str, **changes: Any) -> dict[str, Any]:
    return declared(**changes).of("container/nodePool:NodePool")[f"study-{name}"]


def test_few_reach_the_api_and_nobody_a_node() -> None:
    found = cluster()
    assert found["masterAuthorizedNetworksConfig"] == {
        "cidrBlocks": [{"cidrBlock": "198.51.100.0/24"}],
        "gcpPublicCidrsAccessEnabled": False,
    }
    assert found["privateClusterConfig"]["enablePrivateNodes"] is True
    assert found["masterAuth"] == {"clientCertificateConfig": {"issueClientCertificate": False}}
    assert found["enableLegacyAbac"] is False
    assert found["enableShieldedNodes"] is True


def test_nodes_act_as_an_account_with_one_role_and_two_scopes() -> None:
    made = declared()
    assert [one["role"] for one in made.of("IAMMember").values()] == [
        "roles/container.defaultNodeServiceAccount"
    ]
    for one in made.of("container/nodePool:NodePool").values():
        assert one["nodeConfig"]["oauthScopes"] == [
            "https://www.googleapis.com/auth/logging.write",
            "https://www.googleapis.com/auth/monitoring.write",
        ]
        assert one["nodeConfig"]["metadata"] == {"disable-legacy-endpoints": "true"}


def test_google_installs_the_driver_and_keeps_other_pods_off() -> None:
    node = pool("v100")["nodeConfig"]
    assert node["guestAccelerators"] == [
        {
            "type": "nvidia-tesla-v100",
            "count": 1,
            "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
        }
    ]
    assert [(one["key"], one["effect"]) for one in node["taints"]] == [
        ("nvidia.com/gpu", "NO_SCHEDULE")
    ]
    assert node["shieldedInstanceConfig"]["enableSecureBoot"] is False
    plain = pool("system")["nodeConfig"]
    assert "guestAccelerators" not in plain
    assert "taints" not in plain
    assert plain["shieldedInstanceConfig"]["enableSecureBoot"] is True


@pytest.mark.parametrize("wanted", [True, False])
def test_pods_get_accounts_of_their_own_only_where_that_is_asked_for(wanted: bool) -> None:
    assert ("workloadIdentityConfig" in cluster(workload_identity=wanted)) is wanted
    mode = pool("v100", workload_identity=wanted)["nodeConfig"]["workloadMetadataConfig"]["mode"]
    assert mode == ("GKE_METADATA" if wanted else "GCE_METADATA")


@pytest.mark.parametrize("wanted", [True, False])
def test_google_refuses_the_deletion_that_pulumi_refuses(wanted: bool) -> None:
    assert cluster(protect=wanted)["deletionProtection"] is wanted


def test_a_regional_control_plane_leaves_the_nodes_in_their_zone() -> None:
    found = cluster(control_plane="regional")
    assert (found["location"], found["nodeLocations"]) == ("us-central1", ["us-central1-a"])
    zonal = cluster()
    assert zonal["location"] == "us-central1-a"
    assert zonal.get("nodeLocations") is None


def test_a_pool_that_may_grow_has_bounds_and_no_fixed_count() -> None:
    pools = [dict(one) for one in SECTION["pools"]]
    pools[1] |= {"most-nodes": 4}
    found = pool("v100", pools=pools)
    assert found["autoscaling"] == {"totalMinNodeCount": 2, "totalMaxNodeCount": 4}
    assert found.get("nodeCount") is None
    assert pool("v100")["nodeCount"] == 2


def test_pods_and_services_have_ranges_of_the_subnet() -> None:
    (subnet,) = declared().of("Subnetwork").values()
    assert {one["rangeName"]: one["ipCidrRange"] for one in subnet["secondaryIpRanges"]} == {
        "pods": "10.24.0.0/14",
        "services": "10.28.0.0/20",
    }


def test_the_quota_is_asked_for_every_node_before_anything_else() -> None:
    (quota,) = declared().of("GcpQuota").values()
    assert set(quota["machines"]) == {"system-1", "v100-1", "v100-2"}
    assert quota["machines"]["v100-1"]["NVIDIA_V100_GPUS"] == 1
    assert quota["machines"]["v100-1"]["GPUS_ALL_REGIONS"] == 1
