"""Dated tables, and what is decided from them: releases, drivers, MIG, keys and values of the chart."""

import itertools
import re
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuclusters.compat import dated_table, gpu_products, rke2_matrix
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.rke2_matrix import ModulesPolicy, OperatingSystem
from gpuclusters.gpu_operator import keys, mig_layout
from gpuclusters.gpu_operator import values as gpu_operator_values
from gpuclusters.gpu_operator.keys import Kind, at
from gpuclusters.gpu_operator.values import (
    ContainerDriver,
    OperatorSpec,
    registries,
)
from gpuclusters.metrics import monitoring_stack
from gpuclusters.metrics.monitoring_stack import Monitoring
from gpuclusters.rke2 import releases

A100 = "a100-sxm4-80gb"
VALID_ON_A100 = [
    # The maximal cuts of NVIDIA's MIG user guide (A100), each profile by its compute slices.
    (7,),
    (4, 3),
    (4, 2, 1),
    (4, 1, 1, 1),
    (3, 3),
    (3, 2, 1),
    (3, 1, 1, 1),
    (2, 2, 3),
    (2, 1, 1, 3),
    (1, 1, 1, 1, 3),
    (2, 2, 2, 1),
    (2, 2, 1, 1, 1),
    (2, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 1, 1),
]
_PROFILE = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}


def _slices(sizes: tuple[int, ...]) -> Mapping[str, int]:
    return {_PROFILE[size]: sizes.count(size) for size in sorted(set(sizes))}


def test_rows_of_one_table_are_those_of_the_others() -> None:
    majors = set(rke2_matrix.operators().majors)
    assert {rke2_matrix.operator_major(v) for v in rke2_matrix.operators().releases} == majors
    assert set(keys.table().majors) == majors
    for one in rke2_matrix.operators().majors.values():
        assert all(rke2_matrix.branch(rke2_matrix.branch_of(d)) for d in one.drivers)
    for release in rke2_matrix.operators().releases.values():
        assert rke2_matrix.branch(rke2_matrix.branch_of(release.default_driver)) is not None
        assert all(re.fullmatch(r"[^:]+:[^:]+", image) for image in release.images.values())
    for product in gpu_products.table().products.values():
        assert product.mig is None or product.mig in gpu_products.table().families


def test_the_largest_profile_of_a_product_is_the_whole_of_it() -> None:
    for name, product in gpu_products.table().products.items():
        found = mig_layout.family(name)
        if found is None:
            continue
        kind = gpu_products.table().kinds[found.kind]
        whole = f"{kind.slices[0]}x{kind.slices[1]}"
        memory = max(size for shape, size, _ in found.profiles.values() if shape == whole)
        assert memory == product.memory_gib, name


@pytest.mark.parametrize(
    ("pci_id", "generation"),
    [
        ("10de:0fc6", None),  # GeForce GTX 650, of Kepler
        ("10de:13c2", Architecture.MAXWELL),  # GeForce GTX 970
        ("10de:15f8", Architecture.PASCAL),  # Tesla P100 PCIe
        ("10de:17fd", Architecture.MAXWELL),  # Tesla M40
        ("10de:1aeb", None),  # USB controller of TU116
        ("10de:1af1", None),  # NVSwitch of A100
        ("10de:1db1", Architecture.VOLTA),  # Tesla V100 SXM2
        ("10de:1eb8", Architecture.TURING),  # Tesla T4
        ("10de:20b2", Architecture.AMPERE),  # A100 SXM4 80GB
        ("10de:2184", Architecture.TURING),  # GeForce GTX 1660
        ("10de:228e", None),  # sound of GA106
        ("10de:22a3", None),  # NVSwitch of H100
        ("10de:2330", Architecture.HOPPER),  # H100 SXM5 80GB
        ("10de:2503", Architecture.AMPERE),  # GeForce RTX 3060
        ("10de:26b9", Architecture.ADA),  # L40S
        ("10de:2901", Architecture.BLACKWELL),  # B200
        ("10de:2f80", None),  # sound of GB205
        ("10de:3182", Architecture.BLACKWELL),  # B300 SXM6 AC
    ],
)
def test_a_pci_id_says_the_generation_of_a_gpu(
    pci_id: str, generation: Architecture | None
) -> None:
    assert gpu_products.generation(pci_id) is generation


def test_a_product_that_is_not_in_the_table_is_written_by_pci_id_and_memory() -> None:
    found = gpu_products.product("10de:2503-12gb")
    assert (found.architecture, found.memory_gib) == (Architecture.AMPERE, 12)
    assert not gpu_products.has_nvswitch("10de:2503-12gb", 8)
    for wrong in ("10de:2503", "10de:2503-0gb", "8086:2503-12gb", "10de:228e-12gb"):
        with pytest.raises(KeyError):
            gpu_products.product(wrong)


@pytest.mark.parametrize("sizes", VALID_ON_A100, ids=str)
def test_every_cut_of_nvidias_table_fits(sizes: tuple[int, ...]) -> None:
    assert mig_layout.problem(A100, _slices(sizes)) is None


def test_a_cut_fits_exactly_if_it_is_part_of_one_in_nvidias_table() -> None:
    # No more than the guide's table allows, and nothing less: all sums of at most seven slices.
    for length in range(1, 8):
        for sizes in itertools.combinations_with_replacement((1, 2, 3, 4, 7), length):
            if sum(sizes) > 7:
                continue
            inside = any(
                all(sizes.count(size) <= whole.count(size) for size in set(sizes))
                for whole in VALID_ON_A100
            )
            assert (mig_layout.problem(A100, _slices(sizes)) is None) is inside, sizes


@pytest.mark.parametrize("product", [n for n in gpu_products.names() if mig_layout.family(n)])
def test_named_layouts_of_a_product_fit_on_it_and_one_more_does_not(product: str) -> None:
    found = mig_layout.family(product)
    assert found is not None
    for layout, slices in mig_layout.layouts(product).items():
        assert not slices or mig_layout.problem(product, slices) is None, layout
    for profile, (_, _, most) in found.profiles.items():
        problem = mig_layout.problem(product, {profile: most + 1})
        assert problem is not None
        assert f"a GPU holds {most}" in problem


def test_a_profile_of_another_memory_size_is_named_with_those_that_there_are() -> None:
    assert mig_layout.problem("a100-sxm4-40gb", {"1g.10gb": 4}) is None
    problem = mig_layout.problem("h200-sxm5-141gb", {"1g.10gb": 1})
    assert problem == (
        "h200-sxm5-141gb has no profile 1g.10gb; it has 1g.18gb, 1g.35gb, 2g.35gb, 3g.71gb, 4g.71gb, "
        "7g.141gb, 1g.18gb+me"
    )
    assert mig_layout.problem("l40s", {"1g.10gb": 1}) == "l40s cannot be cut by MIG"


@pytest.mark.parametrize(
    ("version", "containerd"),
    [
        ("v1.31.3+rke2r1", (1, 7, 23)),
        ("v1.31.6+rke2r1", (2, 0, 2)),
        ("v1.35.7+rke2r1", (2, 2, 6)),
        ("v1.36.1+rke2r2", (2, 2, 3)),
        ("v1.36.3+rke2r1", (2, 3, 3)),
        ("v1.36.9+rke2r1", (2, 3, 4)),
        ("v1.37.0+rke2r1", None),
        ("v1.37.1+rke2r1", (2, 3, 4)),
    ],
)
def test_a_release_brings_the_containerd_of_the_last_one_that_changed_it(
    version: str, containerd: tuple[int, ...] | None
) -> None:
    found = rke2_matrix.containerd(releases.parse_version(version))
    assert found == containerd


@pytest.mark.parametrize(
    ("oldest", "least", "branch"),
    [
        (Architecture.VOLTA, 0, 580),
        (Architecture.BLACKWELL, 580, 580),
        (Architecture.HOPPER, 590, 595),
    ],
)
def test_the_default_branch_has_long_support_and_knows_all_gpus(
    oldest: Architecture, least: int, branch: int
) -> None:
    assert rke2_matrix.newest_branch_for(oldest, least) == branch


@pytest.mark.parametrize(
    ("one", "branch"),
    # NVIDIA data centre driver documentation, supported architectures by branch.
    [(Architecture.VOLTA, 580), (Architecture.MAXWELL, 580), (Architecture.TURING, 610)],
)
def test_the_last_branch_of_a_generation_and_texts_that_name_it(
    one: Architecture, branch: int
) -> None:
    assert rke2_matrix.last_branch_for(one) == branch
    if one is Architecture.VOLTA:
        texts = (dated_table.FOLDER / "known_errors").glob("*.yaml")
        named = re.findall(r"branch:? (\d{3})", "".join(path.read_text() for path in texts))
        assert set(named) == {str(branch)}


def test_containers_take_a_driver_of_their_operators_matrix() -> None:
    assert rke2_matrix.newest_driver(595, "v26.3.3") == "595.71.05"
    assert rke2_matrix.newest_driver(595) == "595.91.07"


@pytest.mark.parametrize(
    ("modules", "branch", "generation", "fits"),
    [
        (ModulesPolicy.OPEN, 580, Architecture.VOLTA, False),
        (ModulesPolicy.OPEN, 580, Architecture.TURING, True),
        (ModulesPolicy.PROPRIETARY, 580, Architecture.HOPPER, True),
        (ModulesPolicy.PROPRIETARY, 580, Architecture.BLACKWELL, False),
        (ModulesPolicy.PROPRIETARY, 620, Architecture.AMPERE, False),
    ],
)
def test_modules_fit_a_generation(
    modules: ModulesPolicy, branch: int, generation: Architecture, fits: bool
) -> None:
    assert (rke2_matrix.module_problem(modules, branch, generation) is None) is fits


@pytest.mark.parametrize(
    ("product", "count", "switched"),
    [
        (A100, 8, True),
        (A100, 4, False),
        ("a100-pcie-80gb", 8, False),
        ("v100-sxm2-16gb", 8, False),
        ("v100-sxm3-32gb", 16, True),
        ("p100-sxm2-16gb", 8, False),
    ],
)
def test_machines_have_switches_by_product_and_count(
    product: str, count: int, switched: bool
) -> None:
    assert gpu_products.has_nvswitch(product, count) is switched


def test_a_key_has_majors_in_which_it_is_read() -> None:
    assert ("clusterPolicy", "deployCR") in keys.tree_of("26.7")
    assert ("clusterPolicy", "deployCR") not in keys.tree_of("26.3")
    assert ("cdi", "default") in keys.tree_of("25.3")
    assert ("cdi", "default") not in keys.tree_of("25.10")
    assert keys.tree_of("99.9") == keys.tree_of("26.7")


_TAINTS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["nvidia.com/gpu", "team", "example.com/x"]),
        "value": st.sampled_from(["", "ml"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    }
)
_DRIVERS = st.none() | st.builds(
    ContainerDriver,
    version=st.sampled_from(["580.178.04", "595"]),
    modules=st.sampled_from(list(ModulesPolicy)),
    precompiled=st.booleans(),
    repository=st.none() | st.just("registry.example.com/nvidia"),
    package_mirror=st.none() | st.just("packages"),
)
_WISHES = st.builds(
    OperatorSpec,
    version=st.sampled_from([*rke2_matrix.operators().releases, "v26.7.5"]),
    driver=_DRIVERS,
    systems=st.lists(st.sampled_from(list(OperatingSystem)), max_size=2),
    mig_strategy=st.sampled_from(["single", "mixed"]),
    mig_reboot=st.booleans(),
    taints=st.lists(_TAINTS, max_size=3),
    untainted=st.booleans(),
    node_feature_discovery=st.booleans(),
    nri_plugin=st.booleans(),
    selinux=st.booleans(),
    host_engine=st.booleans(),
    scrape_interval_seconds=st.none() | st.integers(5, 300),
    nodes=st.integers(1, 1000),
)


@given(_WISHES, st.sampled_from(list(Monitoring)))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_value_that_is_derived_is_one_that_the_chart_reads(
    wish: OperatorSpec, monitoring: Monitoring
) -> None:
    metrics = monitoring_stack.operator_values(monitoring)
    found = gpu_operator_values.values(wish, metrics)
    major = rke2_matrix.operator_major(wish.version)
    assert list(keys.problems(found, major)) == []
    tolerated = at(found, "daemonsets.tolerations") or []
    for taint in wish.taints:
        if taint["effect"] != "PreferNoSchedule" and tolerated:
            assert gpu_operator_values.toleration(taint) in tolerated
    variables = keys.environment(found, "toolkit")
    assert "CONTAINERD_CONFIG" not in variables
    assert wish.nri_plugin or variables["CONTAINERD_SOCKET"] == releases.CONTAINERD_SOCKET


def test_todays_operator_is_told_the_socket_and_nothing_else_of_containerd() -> None:
    found = gpu_operator_values.values(OperatorSpec(version="v26.7.0"))
    assert keys.environment(found, "toolkit") == {"CONTAINERD_SOCKET": releases.CONTAINERD_SOCKET}
    assert found["cdi"] == {"enabled": True}
    assert at(found, "devicePlugin.env") is None


def test_before_cdi_pods_are_kept_from_taking_gpus_by_a_variable() -> None:
    found = gpu_operator_values.values(OperatorSpec(version="v25.3.4"))
    assert keys.environment(found, "toolkit") == {
        "CONTAINERD_SOCKET": releases.CONTAINERD_SOCKET,
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED": "false",
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS": "true",
    }
    assert keys.environment(found, "devicePlugin") == {"DEVICE_LIST_STRATEGY": "volume-mounts"}


def test_the_nri_plugin_is_told_nothing_of_containerd() -> None:
    found = gpu_operator_values.values(OperatorSpec(version="v26.7.0", nri_plugin=True))
    assert found["cdi"] == {"enabled": True, "nriPluginEnabled": True}
    assert "toolkit" not in found


def test_precompiled_drivers_of_sles_come_from_suse() -> None:
    driver = ContainerDriver(version="595", precompiled=True)
    found = gpu_operator_values.values(
        OperatorSpec(version="v26.7.0", driver=driver, systems=[OperatingSystem.SLES_15])
    )
    assert found["driver"] == {
        "enabled": True,
        "version": "595",
        "usePrecompiled": True,
        "repository": "registry.suse.com/third-party/nvidia",
    }


def test_many_nodes_give_the_operator_more_memory() -> None:
    assert (
        at(
            gpu_operator_values.values(OperatorSpec(version="v26.7.0", nodes=299)),
            "operator.resources",
        )
        is None
    )
    found = gpu_operator_values.values(OperatorSpec(version="v26.7.0", nodes=300))
    assert at(found, "operator.resources.limits.memory") == "1400Mi"


def test_images_for_a_mirror_name_the_drivers_operating_system() -> None:
    spec = OperatorSpec(
        version="v26.7.0",
        driver=ContainerDriver(version="595.91.07"),
        systems=[OperatingSystem.UBUNTU_24_04],
        mig=True,
    )
    images = gpu_operator_values.references(spec)
    assert "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04" in images
    assert "nvcr.io/nvidia/gpu-operator:v26.7.0" in images
    assert "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0" in images
    assert registries(images) == ("nvcr.io", "registry.k8s.io")
    bare = OperatorSpec(version="v26.7.0", node_feature_discovery=False)
    whole = gpu_operator_values.references(bare)
    assert registries(whole) == ("nvcr.io",)
    assert not any("driver" in image for image in whole)


def test_kinds_of_keys_are_told_apart() -> None:
    tree = keys.tree_of("26.7")
    assert tree["driver", "enabled"] is Kind.FLAG
    assert tree["toolkit", "env"] is Kind.ENV
    assert tree["driver", "upgradePolicy", "maxParallelUpgrades"] is Kind.NUMBER
    assert tree["daemonsets", "labels"] is Kind.ANY
    assert tree["node-feature-discovery", "worker", "tolerations"] is Kind.LIST
