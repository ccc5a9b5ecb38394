"""Row 14: what cannot change while Kata is installed."""

from __future__ import annotations

import pytest

from gpuclusters.domain.kata import DeploymentMode, Installation, Shim, kata_deploy_change

DAEMONSET = Installation(DeploymentMode.DAEMONSET)


@pytest.mark.parametrize(
    ("new", "reasons"),
    [
        (DAEMONSET, ()),
        (
            Installation(DeploymentMode.JOB),
            ("deployment-mode changes from daemonset to job",),
        ),
        (
            Installation(DeploymentMode.DAEMONSET, "b"),
            ("multi-install-suffix changes from '' to 'b'",),
        ),
    ],
)
def test_row_14_kata_deploy_is_replaced_when_mode_or_suffix_change(
    new: Installation, reasons: tuple[str, ...]
) -> None:
    assert kata_deploy_change(DAEMONSET, new) == reasons


def test_row_14_both_changes_are_reasons() -> None:
    assert len(kata_deploy_change(DAEMONSET, Installation(DeploymentMode.JOB, "b"))) == 2


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
