"""What kata-deploy is told: values that its chart reads, and a configuration that its shims read."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any

import pytest

from gpuclusters.boot.guest_profile import BootProfile, Guest
from gpuclusters.core.model import merged
from gpuclusters.kata import model as kata_model
from gpuclusters.kata.model import DeploymentMode, Installation, Shim, ShimConfiguration
from tests.fixtures.tables import beside

CASES = beside(__file__, "kata_deploy.yaml")
PROFILE = BootProfile.of(Guest(gpus=8, memory_gib=256, huge_pages=True, kernel=(6, 17)))


def written(shim: Shim, **changes: Any) -> dict[str, Any]:
    """The configuration of a shim, as the shim reads it."""
    return tomllib.loads(ShimConfiguration(shim=shim, profile=PROFILE, **changes).toml())


def values(shim: Shim = Shim.GO, **changes: object) -> dict[str, Any]:
    given = {
        "installation": Installation(),
        "distribution": "k8s",
        "drop_in": "x = 1\n",
        "snapshotter": "overlayfs",
        "node_selector": {"a": "b"},
        **changes,
    }
    return kata_model.chart_values(shim=shim, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("shim", Shim)
@pytest.mark.parametrize("mode", DeploymentMode)
def test_every_value_that_is_set_is_one_that_the_chart_reads(
    shim: Shim, mode: DeploymentMode
) -> None:
    assert not [*kata_model.unknown_keys(values(shim, installation=Installation(mode, "b")))]


def test_our_shim_and_no_other_is_installed() -> None:
    shims = values()["shims"]
    assert shims.keys() == {"disableAll", "qemu-nvidia-gpu"}
    assert shims["disableAll"] is True
    assert shims["qemu-nvidia-gpu"]["allowedHypervisorAnnotations"] == []
    assert values()["snapshotter"] == {"setup": []}


@pytest.mark.parametrize(("shim", "snapshotter", "setup", "mapping"), CASES["snapshotters"])
def test_a_shim_gets_the_snapshotter_that_its_images_need(
    shim: str, snapshotter: str | None, setup: dict[str, object], mapping: str
) -> None:
    given = values(Shim[shim], snapshotter=snapshotter)
    assert given["snapshotter"] == setup
    assert given["shims"][Shim[shim].value]["containerd"] == {"snapshotter": mapping}


@pytest.mark.parametrize(("given", "path", "nearest"), CASES["unknown"])
def test_a_key_that_the_chart_does_not_read_is_told_with_those_that_it_does(
    given: dict[str, Any], path: list[str], nearest: str | None
) -> None:
    ((at, known),) = kata_model.unknown_keys(given)
    assert [*at] == path
    assert nearest is None or nearest in known


def test_values_that_the_chart_passes_on_have_keys_of_their_own() -> None:
    assert not [*kata_model.unknown_keys(CASES["passed-on"])]


def test_values_are_merged_as_helm_does() -> None:
    assert merged({"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"c": [2]}, "d": {"e": 1}}) == {
        "a": {"b": 1, "c": [2]},
        "d": {"e": 1},
    }


@pytest.mark.parametrize("case", CASES["written"], ids=lambda case: case["id"])
def test_each_shim_finds_what_it_reads_where_it_reads_it(case: dict[str, Any]) -> None:
    document = written(Shim[case["shim"]], **case.get("changes", {}))
    assert merged(document, case["has"]) == document
    for *path, key in case.get("lacks", ()):
        assert key not in reduce(getitem, path, document)


@pytest.mark.parametrize("shim", Shim)
def test_the_guests_command_line_keeps_what_katas_build_puts_there(shim: Shim) -> None:
    words = written(shim)["hypervisor"]["qemu"]["kernel_params"].split()
    assert words[:4] == ["cgroup_no_v1=all", "pci=realloc", "pci=nocrs", "pci=assign-busses"]
    assert ("nvrc.smi.srs=1" in words) is shim.confidential
    assert words[-1] == "agent.cdi_timeout=600"


DEPLOY = "kata-deploy.katacontainers.io"
RUNTIME = {"katacontainers.io/kata-runtime": "true"}


@pytest.mark.parametrize(("shim", "selector"), CASES["selectors"])
def test_runtime_classes_are_placed_as_the_chart_does(shim: str, selector: dict[str, str]) -> None:
    assert Shim[shim].node_selector == selector
    for suffix in ("", "b"):
        installed = selector | RUNTIME | {f"{DEPLOY}/{suffix or 'default'}": "true"}
        assert Installation(DeploymentMode.DAEMONSET, suffix).node_selector(Shim[shim]) == installed


def test_everything_of_a_second_installation_has_its_suffix() -> None:
    second = Installation(DeploymentMode.DAEMONSET, "b")
    configuration = ShimConfiguration(shim=Shim.RUST, profile=PROFILE, installation=second)
    assert second.handler(Shim.RUST) == "kata-qemu-nvidia-gpu-runtime-rs-b"
    assert second.containerd_drop_in == "/etc/containerd/conf.d/kata-deploy-b.toml"
    assert configuration.folder == (
        "/opt/kata-b/share/defaults/kata-containers/runtime-rs/runtimes/qemu-nvidia-gpu-runtime-rs"
    )
    first = ShimConfiguration(shim=Shim.GO, profile=PROFILE)
    assert first.folder == "/opt/kata/share/defaults/kata-containers/runtimes/qemu-nvidia-gpu"
    assert Shim.GO.runtime_class == "kata-qemu-nvidia-gpu"
    assert [shim for shim in Shim if shim.shares_files] == [Shim.GO]


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
