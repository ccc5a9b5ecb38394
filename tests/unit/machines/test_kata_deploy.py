"""What cannot change while Kata is installed."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gpuclusters.kata import model as kata_model
from gpuclusters.kata.model import DeploymentMode, Installation, Shim
from tests.unit.machines.test_kata_chart import values

DAEMONSET = Installation(DeploymentMode.DAEMONSET)


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Every value by its path, as a diff names it."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", repr(value)


@pytest.mark.parametrize(
    ("new", "changed"),
    [
        (DAEMONSET, set()),
        (Installation(DeploymentMode.JOB), {"deploymentMode"}),
        (Installation(DeploymentMode.DAEMONSET, "b"), {"env.multiInstallSuffix"}),
        (Installation(DeploymentMode.JOB, "b"), {"deploymentMode", "env.multiInstallSuffix"}),
    ],
)
def test_mode_and_suffix_are_the_values_by_which_the_release_is_replaced(
    new: Installation, changed: set[str]
) -> None:
    old, now = (set(leaves(values(installation=one))) for one in (DAEMONSET, new))
    found = {path for path, _ in old ^ now}
    assert found == changed
    assert found <= set(kata_model.IMMUTABLE)


def test_runtime_classes_are_named_and_placed_as_the_chart_does() -> None:
    assert Shim.GO.runtime_class == "kata-qemu-nvidia-gpu"
    assert Shim.GO.node_selector == {"nvidia.com/cc.ready.state": "false"}
    assert Shim.RUST_SNP.node_selector == {
        "nvidia.com/cc.ready.state": "true",
        "amd.feature.node.kubernetes.io/snp": "true",
    }
    assert Shim.GO_TDX.node_selector == {
        "nvidia.com/cc.ready.state": "true",
        "intel.feature.node.kubernetes.io/tdx": "true",
    }
    assert [shim for shim in Shim if shim.shares_files] == [Shim.GO]
