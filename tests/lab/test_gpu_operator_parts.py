"""Parts of the lab's GPU Operator by themselves."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from lab.gpu_operator import policy
from lab.gpu_operator.sharing import Sharing, balanced, devices, layouts, product
from lab.hosts import GpuState


def gpus(**changes: Any) -> GpuState:
    values: dict[str, Any] = {
        "product": "NVIDIA A100-SXM4-80GB",
        "count": 2,
        "usable": 2,
        "driver_version": "580.178.04",
        "installed_version": "580.178.04",
        "mig": {},
        "nouveau": False,
    }
    return GpuState(**values | changes)


CUT = gpus(mig={0: ("1g.10gb", "1g.10gb")})
WHOLE = "NVIDIA-A100-SXM4-80GB"


def shared(kind: str, **more: bool) -> Sharing:
    rules = {"resources": [{"name": "nvidia.com/gpu", "replicas": 3}], **more}
    return Sharing.of(yaml.safe_dump({"sharing": {kind: rules}}))


@pytest.mark.parametrize(
    ("machine", "strategy", "sharing", "counts", "called"),
    [
        (gpus(), "single", Sharing(), {"gpu": 2}, WHOLE),
        (gpus(usable=0), "single", Sharing(), {}, WHOLE),  # without a driver
        # "Strategy single → resource `nvidia.com/gpu` counts slices …; mixed → `nvidia.com/mig-1g.10gb` plus
        # `nvidia.com/gpu` for un-MIGed GPUs" (NVIDIA MIG support in Kubernetes).
        (CUT, "mixed", Sharing(), {"mig-1g.10gb": 2, "gpu": 1}, WHOLE),
        (CUT, "single", Sharing(), {"gpu": 3}, f"{WHOLE}-MIG-1g.10gb"),
        # "renameByDefault → resource `nvidia.com/gpu.shared`; otherwise the product label gets `-SHARED`"
        # (NVIDIA/k8s-device-plugin, Shared Access to GPUs).
        (gpus(), "none", shared("timeSlicing"), {"gpu": 6}, f"{WHOLE}-SHARED"),
        (gpus(), "none", shared("mps"), {"gpu": 6}, f"{WHOLE}-SHARED"),
        (gpus(), "none", shared("timeSlicing", renameByDefault=True), {"gpu.shared": 6}, WHOLE),
        (gpus(), "none", shared("mps", renameByDefault=True), {"gpu.shared": 6}, WHOLE),
    ],
)
def test_gpus_are_offered_whole_or_as_slices_or_shared(
    machine: GpuState, strategy: str, sharing: Sharing, counts: dict[str, int], called: str
) -> None:
    found = devices(machine, strategy, sharing)
    assert {name: len(of) for name, of in found.items()} == {
        f"nvidia.com/{name}": count for name, count in counts.items()
    }
    assert product(machine, strategy, sharing) == called


def test_layouts_are_the_named_ones_or_those_of_a_config_map() -> None:
    assert layouts("all-disabled", 2, "") == [{}]
    assert layouts("all-enabled", 2, "") == [{0: (), 1: ()}]
    assert layouts("all-1g.10gb", 1, "")[0] == {0: ("1g.10gb",) * 7}
    assert layouts("nonsense", 1, "") == []
    assert balanced(1, ["1g.10gb", "2g.20gb", "3g.40gb"]) == [
        {0: ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")}
    ]
    half = [
        {"devices": [0], "mig-enabled": False},
        {"devices": [1], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}},
    ]
    text = yaml.safe_dump({"version": "v1", "mig-configs": {"half": half}})
    assert layouts("half", 2, text) == [{1: ("3g.40gb", "3g.40gb")}]
    assert layouts("all-1g.10gb", 2, text) == []


@pytest.mark.parametrize(
    ("nfd", "nodes", "waiting", "reason", "state"),
    [
        (False, False, [], "NFDLabelsMissing", "ready"),
        (True, False, [], "NoGPUNodes", "ready"),
        (True, True, [], "Reconciled", "ready"),
        (True, True, ["state-driver"], "OperandNotReady", "notReady"),
    ],
)
def test_ready_is_also_said_with_nothing_to_do(
    *, nfd: bool, nodes: bool, waiting: list[str], reason: str, state: str
) -> None:
    """As `controllers/clusterpolicy_controller.go` of v26.7.0: "no NFD-labelled node in the cluster …
    Update CR state as ready as all states are complete"."""
    found = policy.status(
        {}, "gpu-operator", has_nfd_labels=nfd, has_gpu_nodes=nodes, not_ready=waiting
    )
    assert found["state"] == state
    holds = next(c for c in found["conditions"] if c["status"] == "True")
    assert holds["reason"] == reason
    if waiting:
        assert holds["message"] == "ClusterPolicy is not ready; states not ready: [state-driver]"
