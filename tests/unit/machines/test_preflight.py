"""What a preflight finds: every finding of the catalogue, and none on a machine that is right."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gpuclusters.compat.platforms import PRESETS, Platform, Preset
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
    PciFact,
    Stage,
    VfioBackend,
    expects_of,
)
from tests.fixtures.tables import beside

WRITTEN = beside(__file__, "preflight.yaml")
PRESET: Preset = PRESETS[Platform.SUPERMICRO_HGX_H100]
BOARD = Board(PRESET.gpus, PRESET.switches, PRESET.extra_functions)
EXPECTS: Expects = expects_of(PRESET, BOARD, huge_pages_1g=(800, 800))
GPU_1, GPU_5 = PRESET.gpus[1], PRESET.gpus[5]
SWITCH_GROUP = "14"
EXTRA = PRESET.extra_functions[0]
MIB = 2**20
BRIDGE = "0000:03:00.0"
HEADER = bytes([0xDE, 0x10, 0x30, 0x23, 6, 4, 0x10, 0, 0xA1, 0, 2, 3, 0, 0, 0, 0])
FALLEN = b"\xff" * 16
FACT = TypeAdapter(PciFact)


def functions(*, prepared: bool) -> dict[str, PciFact]:
    found: dict[str, PciFact] = {}
    for number, address in enumerate([*EXPECTS.gpus.values(), *EXPECTS.switches, EXTRA]):
        is_gpu = address in EXPECTS.gpus.values()
        group = str(20 + number) if is_gpu else SWITCH_GROUP
        start = 0x40_0000_0000 * (number + 1)
        found[address] = PciFact(
            address=address,
            pci_id=EXPECTS.wanted_id(address) or "11f8:4128",
            class_code="030200" if is_gpu else "068000",
            numa_node=number % 2,
            driver="vfio-pci" if prepared else None,
            iommu_group=group if prepared else None,
            header=HEADER,
            bars={
                int(bar): Bar(start + int(bar) * 2**38, mib * MIB)
                for bar, mib in EXPECTS.gpu_bars_mib.items()
            }
            if is_gpu
            else {0: Bar(start, 32 * MIB)},
            resettable=True,
        )
    found[BRIDGE] = PciFact(
        address=BRIDGE,
        pci_id="11f8:4000",
        class_code="060400",
        driver="pcieport",
        iommu_group=SWITCH_GROUP if prepared else None,
    )
    return found


def replace(facts: HostFacts, **changes: Any) -> HostFacts:
    """The machine with other facts."""
    return facts.model_copy(update=changes)


def bare(**changes: Any) -> HostFacts:
    """An operating system and nothing else; nouveau loads by itself."""
    found = {"functions": functions(prepared=False)}
    return HostFacts.model_validate({**WRITTEN["bare"], **found, **changes})


def prepared(**changes: Any) -> HostFacts:
    """As `up` leaves it."""
    return bare(**{**WRITTEN["prepared"], "functions": functions(prepared=True), **changes})


def having(facts: HostFacts, address: str, **changes: Any) -> HostFacts:
    """The machine with one function changed, or added."""
    old = facts.functions.get(address) or PciFact(
        address=address, pci_id="15b3:1021", class_code="020000"
    )
    fact = FACT.validate_python({**dataclasses.asdict(old), **changes})
    return replace(facts, functions={**facts.functions, address: fact})


def lacking(facts: HostFacts, address: str) -> HostFacts:
    """The machine without a function."""
    rest = {a: f for a, f in facts.functions.items() if a != address}
    return replace(facts, functions=rest)


BARE, PREPARED = Stage.BARE, Stage.PREPARED
CASES = WRITTEN["cases"]
"""Finding, where it shows, and what breaks the machine."""


def names(facts: HostFacts, stage: Stage, expects: Expects = EXPECTS) -> list[str]:
    return [finding.code.removeprefix(AREA) for finding in judge(facts, expects, stage)]


def broken(machine: HostFacts, change: dict[str, Any]) -> HostFacts:
    """The machine with a change of preflight.yaml."""
    facts = dict(change)
    for address, differs in facts.pop("having", {}).items():
        machine = having(machine, address, **differs)
    if gone := facts.pop("lacking", None):
        machine = lacking(machine, gone)
    if table := facts.pop("table", None):
        modules, copies = table
        entry = {"partitionId": 0, "gpuInfo": [{"physicalId": module} for module in modules]}
        output = json.dumps({"partitionInfo": [entry] * copies})
        facts["fabric"] = {"exit_status": 0, "output": output}
    return HostFacts.model_validate({**dict(machine), **facts})


@pytest.mark.parametrize(
    ("name", "stages", "change"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_broken_machine_is_found_with_its_remedy(
    name: str, stages: list[str], change: dict[str, Any]
) -> None:
    machines: Mapping[Stage, HostFacts] = {BARE: bare(), PREPARED: prepared()}
    for stage in Stage:
        found = names(broken(machines[stage], change), stage)
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


@pytest.mark.parametrize(("facts", "found"), WRITTEN["iommu"])
def test_an_iommu_is_missed_before_preparation_only_if_it_should_be_on(
    facts: dict[str, Any], found: list[str]
) -> None:
    assert names(broken(bare(), facts), BARE) == found


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


MACHINES = st.builds(
    prepared,
    functions=st.lists(FUNCTIONS, max_size=5).map(lambda found: {f.address: f for f in found}),
    iommu_groups=st.integers(0, 40),
    kernel=st.text(max_size=12),
    cpu_flags=st.frozensets(st.sampled_from(["vmx", "svm", "hypervisor", "pdpe1gb"])),
    fabric=st.builds(FabricFact, st.integers(0, 255), st.text(max_size=30)),
)


@settings(max_examples=25)
@given(MACHINES, st.sampled_from(list(Stage)))
def test_whatever_a_machine_says_is_judged(facts: HostFacts, stage: Stage) -> None:
    found = judge(facts, EXPECTS, stage)
    failures = [f for f in found if f.level is Level.BLOCK]
    assert list(found[: len(failures)]) == failures, "they come first"
    assert all(stage in stages_of(f.code) for f in found)
    assert all("\n" not in str(f) for f in found)
    # A device that is not ours never makes a machine better.
    without = {a: f for a, f in facts.functions.items() if a in EXPECTS.functions}
    fewer = judge(replace(facts, functions=without), EXPECTS, stage)
    assert sum(f.level is Level.BLOCK for f in fewer) <= len(failures)
