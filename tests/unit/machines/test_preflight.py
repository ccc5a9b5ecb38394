"""What a preflight finds: every finding of the catalogue, and none on a machine that is right."""

import dataclasses
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.core import codes
from gpuclusters.core.finding import Level
from gpuclusters.fabric.table import Board
from gpuclusters.preflight import decide as preflight
from gpuclusters.preflight.decide import AREA, judge
from gpuclusters.preflight.decide import stages as stages_of
from gpuclusters.preflight.model import (
    Bar,
    Expects,
    FabricFact,
    HostFacts,
    NumaFact,
    PciFact,
    Stage,
    VfioBackend,
    expects_of,
)
from tests.unit.machines.preflight_machines import (
    EXPECTS,
    EXTRA,
    FALLEN,
    GPU_1,
    GPU_3,
    GPU_5,
    HEADER,
    Change,
    bare,
    having,
    lacking,
    prepared,
    replace,
)

BARE, PREPARED = Stage.BARE, Stage.PREPARED
BOTH = (BARE, PREPARED)


def names(facts: HostFacts, stage: Stage, expects: Expects = EXPECTS) -> list[str]:
    return [finding.code.removeprefix(AREA) for finding in judge(facts, expects, stage)]


def fabric(status: int, output: str = "") -> Change:
    return lambda facts: replace(facts, fabric=FabricFact(status, output))


def table(*modules: int, copies: int = 15) -> str:
    entry = {"partitionId": 0, "gpuInfo": [{"physicalId": module} for module in modules]}
    return json.dumps({"partitionInfo": [entry] * copies})


# Finding → where it shows, and what breaks the machine.
CASES: list[tuple[str, tuple[Stage, ...], Change]] = [
    ("sudo-password", BOTH, lambda f: replace(f, root=False)),
    ("fuser-missing", BOTH, lambda f: replace(f, commands=f.commands - {"fuser"})),
    ("virtualization-off", BOTH, lambda f: replace(f, cpu_flags=frozenset({"pdpe1gb"}))),
    ("host-is-virtual", BOTH, lambda f: replace(f, cpu_flags=f.cpu_flags | {"hypervisor"})),
    (
        "iommu-firmware-off",
        BOTH,
        lambda f: replace(f, acpi_tables=frozenset(), iommu_groups=0),
    ),
    ("iommu-off", (PREPARED,), lambda f: replace(f, iommu_groups=0)),
    (
        "iommu-off",
        (BARE,),
        lambda f: replace(f, iommu_groups=0, command_line=("intel_iommu=on",)),
    ),
    (
        "acs-missing",
        BOTH,
        lambda f: having(having(f, GPU_3, iommu_group="9"), GPU_1, iommu_group="9"),
    ),
    (
        "foreign-in-group",
        BOTH,
        lambda f: having(
            having(f, GPU_1, iommu_group="9"), "0000:86:00.1", iommu_group="9", driver="mlx5_core"
        ),
    ),
    (
        "memory-controller-left-out",
        BOTH,
        lambda f: having(
            having(f, GPU_1, iommu_group="9"),
            "0000:02:00.1",
            pci_id="11f8:4128",
            iommu_group="9",
            driver=None,
        ),
    ),
    ("function-missing", BOTH, lambda f: lacking(f, GPU_5)),
    ("wrong-function", BOTH, lambda f: having(f, GPU_1, pci_id="15b3:1021")),
    ("unlisted-function", BOTH, lambda f: having(f, "0000:c8:00.0", pci_id="10de:2330")),
    ("off-the-bus", BOTH, lambda f: having(f, GPU_1, header=FALLEN)),
    ("off-the-bus", BOTH, lambda f: having(f, GPU_1, header=HEADER[:14] + b"\x7f\x00")),
    ("bar-size", BOTH, lambda f: having(f, GPU_1, bars={2: Bar(2**40, 2**34)})),
    ("bar-not-placed", BOTH, lambda f: having(f, GPU_1, bars={0: Bar(2**40, 2**24), 2: Bar(0, 0)})),
    ("bar-below-4g", BOTH, lambda f: having(f, GPU_1, bars={2: Bar(2**31, 2**37)})),
    ("reset-missing", BOTH, lambda f: having(f, GPU_1, resettable=False)),
    ("driver-loaded", (PREPARED,), lambda f: replace(f, modules=frozenset({"nvidia"}))),
    ("driver-loaded", (PREPARED,), lambda f: replace(f, modules=frozenset({"nouveau"}))),
    ("driver-installed", BOTH, lambda f: replace(f, packages={"nvidia-driver-570": "570.195.03"})),
    ("driver-installed", BOTH, lambda f: replace(f, packages={"kmod-nvidia-open-dkms": "595"})),
    ("not-on-vfio", (PREPARED,), lambda f: having(f, GPU_1, driver=None)),
    ("not-on-vfio", (PREPARED,), lambda f: having(f, EXTRA, driver=None)),
    ("gpus-in-use", (BARE,), lambda f: replace(f, holders={7: "python3"})),
    (
        "vfio-node-missing",
        (PREPARED,),
        lambda f: replace(f, nodes=frozenset({"/dev/kvm", "/dev/vfio/vfio"})),
    ),
    (
        "vfio-node-missing",
        (PREPARED,),
        lambda f: replace(f, nodes=f.nodes - {"/dev/vfio/vfio"}),
    ),
    ("kvm-missing", (PREPARED,), lambda f: replace(f, nodes=f.nodes - {"/dev/kvm"})),
    ("kernel-old", BOTH, lambda f: replace(f, kernel="6.8.0-51-generic")),
    ("qemu-missing", (PREPARED,), lambda f: replace(f, qemu=None)),
    ("qemu-old", BOTH, lambda f: replace(f, qemu="8.2.2")),
    ("libvirt-missing", (PREPARED,), lambda f: replace(f, libvirt=None)),
    ("libvirt-old", BOTH, lambda f: replace(f, libvirt="8.0.0")),
    ("ovmf-missing", (PREPARED,), lambda f: replace(f, firmware=frozenset())),
    ("no-systemd", BOTH, lambda f: replace(f, commands=frozenset({"apt-get", "fuser"}))),
    ("no-package-manager", (BARE,), lambda f: replace(f, commands=frozenset({"systemctl"}))),
    ("memory-short", BOTH, lambda f: replace(f, memory_kib=1500 * 2**20)),
    ("numa-nodes", BOTH, lambda f: replace(f, numa={**f.numa, 2: NumaFact(2**20, 0)})),
    ("huge-pages-unsupported", BOTH, lambda f: replace(f, cpu_flags=frozenset({"vmx"}))),
    ("huge-pages-too-many", BOTH, lambda f: replace(f, numa={0: NumaFact(2**20, 0)})),
    (
        "huge-pages-short",
        (PREPARED,),
        lambda f: replace(f, numa={n: NumaFact(v.memory_kib, 799) for n, v in f.numa.items()}),
    ),
    ("disk-short", BOTH, lambda f: replace(f, free_gib=3)),
    ("clock-skew", BOTH, lambda f: replace(f, clock_offset_seconds=-90)),
    ("fabric-client-missing", (PREPARED,), fabric(127)),
    ("fabric-unreachable", (PREPARED,), fabric(247, "Failed to connect: fmReturn: -9")),
    ("fabric-initialising", (PREPARED,), fabric(248)),
    ("fabric-mode", (PREPARED,), fabric(253)),
    ("fabric-version", (PREPARED,), fabric(250)),
    ("fabric-failed", (PREPARED,), fabric(254)),
    ("fabric-failed", (PREPARED,), fabric(0, "Failed")),
    ("fabric-partitions", (PREPARED,), fabric(0, table(1, 2, 3, 4, 5, 6, 7, copies=10))),
    ("fabric-partitions", (PREPARED,), fabric(0, table(*range(1, 9), copies=14))),
    ("fabric-modules", (PREPARED,), fabric(0, table(*range(9)))),
]


@pytest.mark.parametrize(
    ("name", "stages", "change"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_broken_machine_is_found_with_its_remedy(
    name: str, stages: tuple[Stage, ...], change: Change
) -> None:
    machines: Mapping[Stage, HostFacts] = {BARE: bare(), PREPARED: prepared()}
    for stage in Stage:
        found = names(change(machines[stage]), stage)
        if stage in stages:
            assert name in found
        elif stage not in stages_of(AREA + name):
            assert name not in found


def test_every_finding_of_the_catalogue_has_a_case() -> None:
    elsewhere = {"iommufd-missing", "not-read", "machine-unfit", "fleet-unfit"}
    assert {name for name, _, _ in CASES} | elsewhere == {
        code.removeprefix(AREA) for code in codes.listed() if code.startswith(AREA)
    }


def test_a_machine_that_is_right_has_no_finding() -> None:
    assert names(bare(), BARE) == []
    assert names(prepared(), PREPARED) == []
    assert names(prepared(), BARE) == [], (
        "the second `up` looks at a prepared machine as a bare one"
    )


def test_a_bare_machine_is_not_taken_for_a_prepared_one() -> None:
    found = names(bare(), PREPARED)
    assert {"iommu-off", "not-on-vfio", "driver-loaded", "qemu-missing", "huge-pages-short"} <= set(
        found
    )


def test_a_function_of_the_group_without_a_driver_is_in_nobodys_way() -> None:
    idle = having(prepared(), "0000:86:00.1", iommu_group="20", driver=None)
    bridge = having(
        prepared(), "0000:85:00.0", iommu_group="20", class_code="060400", driver="pcieport"
    )
    assert names(idle, PREPARED) == names(bridge, PREPARED) == []


def test_all_findings_of_a_machine_come_at_once_with_remedy_and_source() -> None:
    broken = having(
        lacking(bare(free_gib=1, memory_kib=2**20), GPU_5), GPU_1, header=FALLEN, pci_id="1af4:1041"
    )
    error = preflight.PreflightError("hgx-01 (10.0.0.11:22)", BARE, judge(broken, EXPECTS, BARE))
    text = str(error)
    assert text.startswith("hgx-01 (10.0.0.11:22): the machine cannot be prepared, 5 findings")
    assert "nothing was changed" in text.splitlines()[0]
    for name in ("disk-short", "memory-short", "function-missing", "off-the-bus", "wrong-function"):
        assert f"preflight.{name}: " in text
        assert codes.listed()[AREA + name].do in text
        assert codes.listed()[AREA + name].source in text
    assert f"GPU 1 ({GPU_1}): revision ff, header type ff" in text
    assert f"GPU 5 ({GPU_5}): no PCI function" in text
    assert "expected 10de:2330" in text


@pytest.mark.parametrize(
    ("backend", "nodes", "found"),
    [
        (VfioBackend.LEGACY, {"/dev/iommu"}, []),
        (VfioBackend.AUTO, set(), []),
        (VfioBackend.IOMMUFD, set(), ["iommufd-missing"]),
        (VfioBackend.IOMMUFD, {"/dev/iommu"}, ["vfio-node-missing"]),
    ],
)
def test_the_nodes_are_those_of_the_chosen_backend(
    backend: VfioBackend, nodes: set[str], found: list[str]
) -> None:
    facts = prepared()
    facts = replace(facts, nodes=facts.nodes | nodes)
    expects = EXPECTS.model_copy(update={"vfio": backend})
    assert sorted(set(names(facts, PREPARED, expects))) == found


def test_iommufd_is_right_when_every_function_has_its_own_node() -> None:
    facts = prepared()
    functions = {
        address: dataclasses.replace(f, vfio_device=f"vfio{n}")
        if address in EXPECTS.functions
        else f
        for n, (address, f) in enumerate(facts.functions.items())
    }
    nodes = {f"/dev/vfio/devices/{f.vfio_device}" for f in functions.values() if f.vfio_device}
    facts = replace(facts, functions=functions, nodes=frozenset({"/dev/kvm", "/dev/iommu", *nodes}))
    for backend in (VfioBackend.AUTO, VfioBackend.IOMMUFD):
        assert names(facts, PREPARED, EXPECTS.model_copy(update={"vfio": backend})) == []


def test_an_amd_machine_needs_the_table_of_amd() -> None:
    amd = bare(cpu_vendor="AuthenticAMD", cpu_flags=frozenset({"svm", "pdpe1gb"}))
    assert names(amd, BARE) == ["iommu-firmware-off"]
    amd = replace(amd, acpi_tables=frozenset({"IVRS"}))
    assert names(amd, BARE) == ["iommu-off"], "AMD's is on unless the kernel is told otherwise"
    assert names(replace(amd, iommu_groups=40), BARE) == []
    assert names(replace(amd, command_line=("amd_iommu=off",)), BARE) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("quiet", []),
        ("iommu=pt", []),
        ("intel_iommu=off", []),
        ("intel_iommu=on", ["iommu-off"]),
        ("intel_iommu=on,sm_on iommu=pt", ["iommu-off"]),
    ],
)
def test_an_intel_iommu_is_missed_before_preparation_only_if_it_was_asked_for(
    line: str, found: list[str]
) -> None:
    assert names(bare(command_line=tuple(line.split())), BARE) == found


def test_a_refresh_tells_only_what_does_not_change_by_itself() -> None:
    expects = EXPECTS
    one = preflight.outputs(prepared(), expects, judge(prepared(), expects, PREPARED))
    later = prepared(free_gib=500, clock_offset_seconds=3)
    assert preflight.outputs(later, expects, judge(later, expects, PREPARED)) == one
    assert one["gpus"][GPU_1] == {"iommu_group": "20", "driver": "vfio-pci", "numa_node": 0}


@pytest.mark.parametrize("platform", list(Platform))
def test_every_platform_can_be_expected(platform: Platform) -> None:
    preset = PRESETS[platform]
    board = Board(preset.gpus, preset.switches, preset.extra_functions)
    expects = expects_of(preset, board)
    assert Expects.model_validate(expects.model_dump(mode="json")) == expects
    assert expects.gpu_bars_mib == {str(n): mib for n, mib in preset.gpu_bars_mib.items()}


def test_an_address_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0000:0f:00\.0 stands more than once"):
        Expects(gpus={"1": "0000:0f:00.0"}, switches=("0000:0f:00.0",))


FUNCTIONS = st.builds(
    PciFact,
    address=st.sampled_from([*EXPECTS.functions, "0000:86:00.1"]),
    pci_id=st.sampled_from(["10de:2330", "10de:22a3", "11f8:4128", "15b3:1021"]),
    class_code=st.sampled_from(["030200", "060400", "020000"]),
    driver=st.sampled_from([None, "vfio-pci", "nvidia", "mlx5_core"]),
    iommu_group=st.sampled_from([None, "1", "2"]),
    header=st.binary(max_size=16),
    bars=st.dictionaries(
        st.integers(0, 5), st.builds(Bar, st.integers(0, 2**48), st.integers(0, 2**38))
    ),
    resettable=st.sampled_from([None, True, False]),
    vfio_device=st.sampled_from([None, "vfio0"]),
)


@given(
    functions=st.lists(FUNCTIONS, max_size=16),
    groups=st.integers(0, 40),
    kernel=st.text(max_size=12),
    flags=st.frozensets(st.sampled_from(["vmx", "svm", "hypervisor", "pdpe1gb"])),
    output=st.text(max_size=30),
    status=st.integers(0, 255),
    stage=st.sampled_from(list(Stage)),
)
def test_whatever_a_machine_says_is_judged(
    functions: list[PciFact],
    groups: int,
    kernel: str,
    flags: frozenset[str],
    output: str,
    status: int,
    stage: Stage,
) -> None:
    facts = prepared(
        functions={f.address: f for f in functions},
        iommu_groups=groups,
        kernel=kernel,
        cpu_flags=flags,
        fabric=FabricFact(status, output),
    )
    found = judge(facts, EXPECTS, stage)
    failures = [f for f in found if f.level is Level.BLOCK]
    assert list(found[: len(failures)]) == failures, "they come first"
    assert all(stage in stages_of(f.code) for f in found)
    assert all("\n" not in str(f) for f in found)
    # A device that is not ours never makes a machine better.
    without = {a: f for a, f in facts.functions.items() if a in EXPECTS.functions}
    fewer = judge(replace(facts, functions=without), EXPECTS, stage)
    assert sum(f.level is Level.BLOCK for f in fewer) <= len(failures)
