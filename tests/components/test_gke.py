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
