"""How a host's boot and its kernel's command line differ from inputs, and what forbids to change them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuclusters.boot import command_line, decide, model
from gpuclusters.boot.decide import BootMethod, BootState, FoundFile
from gpuclusters.boot.model import Cpu, HostBootInputs, kernel_arguments
from gpuclusters.core.finding import Finding
from gpuclusters.host.model import sha256_of
from tests.fixtures.made_up import CONNECTION
from tests.fixtures.tables import beside

PATH = model.MODPROBE_FILE
TEXT = f"{model.MARK}\nblacklist nouveau\n"
INPUTS = HostBootInputs.model_validate(
    {
        "connection": CONNECTION,
        "kernel_arguments": ["intel_iommu=on"],
        "files": {PATH: TEXT},
    }
)
WRITTEN = FoundFile(sha256_of(TEXT.encode()), "0644", "root:root", ours=True)
AS_DECLARED = BootState(
    boot_id="boot-1",
    running="quiet intel_iommu=on",
    method=BootMethod.GRUB_FOLDER,
    others="quiet",
    ours=("intel_iommu=on",),
    next_boot="quiet intel_iommu=on",
    initramfs=model.initramfs_digest(INPUTS.files),
    files={PATH: WRITTEN},
)


FILES = {
    "written": WRITTEN,
    "missing": FoundFile(None),
    "foreign": FoundFile("0" * 64),
    "ours-changed": FoundFile("0" * 64, ours=True),
}
CASES = yaml.safe_load((Path(__file__).parent / "boot.yaml").read_text().replace("FILE", PATH))


def found(
    inputs: HostBootInputs = INPUTS, before: Sequence[str] = (), **state: Any
) -> list[Finding]:
    return list(decide.findings(inputs, before, AS_DECLARED.model_copy(update=state)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["state"])[:60])
def test_every_difference_is_found_and_nothing_else(case: dict[str, Any]) -> None:
    inputs = HostBootInputs.model_validate({**INPUTS.model_dump(), **case.get("inputs", {})})
    state = dict(case["state"])
    if "files" in state:
        state["files"] = {path: FILES[how] for path, how in state["files"].items()}
    changes = {name: getattr(BootState.model_validate(state), name) for name in state}
    for one, wanted in zip(
        found(inputs, case.get("before", ()), **changes), case.get("found", ()), strict=True
    ):
        words = wanted.get("says", "")
        told: dict[str, Any] = {"says": words if words in one.problem else one.problem}
        told |= {"code": one.code, "level": one.level, "step": one.step, "path": [*one.path]}
        assert {name: told[name] for name in wanted} == wanted


def test_a_boot_is_taken_over_only_if_nothing_would_have_to_boot_anew() -> None:
    def differences(**state: Any) -> list[str]:
        return [one.code for one in found(**state) if not one.missing]

    untouched = {"ours": (), "others": AS_DECLARED.running, "initramfs": ""}
    assert differences(**untouched) == []
    assert differences(**untouched, files={PATH: FoundFile(None)}) == []
    begun = {"running": "quiet", "ours": ("intel_iommu=on",)}
    assert differences(**begun) == [], "a run of ours was interrupted"
    other = {PATH: FoundFile("1" * 64, ours=True)}
    assert differences(ours=(), next_boot="quiet", running="quiet", files=other) == [
        "boot.file-changed",
        "boot.running-arguments",
    ]


OTHERS = st.lists(
    st.sampled_from(beside(__file__, "kernel_command_line.yaml")),
    max_size=8,
    unique=True,
).map(" ".join)
WANTED = st.builds(
    kernel_arguments,
    cpu=st.sampled_from(Cpu),
    huge_pages_1g_by_numa_node=st.dictionaries(st.integers(0, 3), st.integers(0, 512), max_size=4),
    early_claim=st.lists(st.sampled_from(["10de:2330", "10de:22a3"]), max_size=2),
    extra=st.sampled_from([(), ("pci=realloc",)]),
)


@settings(max_examples=60)
@given(OTHERS, WANTED)
def test_others_are_kept_and_ours_hold_or_it_is_a_conflict(
    others: str, wanted: tuple[str, ...]
) -> None:
    assume(not command_line.conflicts(others, wanted))
    line = " ".join([others, *command_line.additions(others, wanted)])
    assert command_line.split(line)[: len(command_line.split(others))] == command_line.split(others)
    assert command_line.lacking(line, wanted) == ()
    assert command_line.additions(line, wanted) == (), "a second time there is nothing to add"
    before, after = (
        command_line.effective(command_line.split(others)),
        command_line.effective(command_line.split(line)),
    )
    for name, value in before.items():
        assert set(value.split(",")) <= set(after[name].split(",")), name


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["a", 'b="c d"', "e=1,2", "f=", '"x y"=1']), max_size=6))
def test_blanks_in_quotes_do_not_separate(arguments: list[str]) -> None:
    assert command_line.split("  ".join(arguments)) == tuple(arguments)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("intel_iommu=off", "intel_iommu=on"),
        ("iommu=soft", "iommu=pt"),
        ("default_hugepagesz=2M", "default_hugepagesz=1G"),
        ("pci=nomsi", "pci=realloc"),
    ],
)
def test_an_argument_of_others_is_never_overridden(theirs: str, ours: str) -> None:
    (conflict,) = command_line.conflicts(theirs, [ours])
    assert (conflict.theirs, conflict.ours) == (theirs, ours)


def test_pages_of_a_size_that_others_reserve_are_a_conflict_because_the_first_counts() -> None:
    wanted = command_line.huge_page_arguments({0: 8, 1: 8})
    assert command_line.conflicts("hugepagesz=1G hugepages=4", wanted)
    assert not command_line.conflicts("hugepagesz=2M hugepages=4", wanted)
    assert command_line.conflicts("hugepagesz=1024M hugepages=1:8,0:8", wanted) == ()


def test_lists_of_which_the_last_counts_repeat_what_others_listed() -> None:
    added = command_line.additions("module_blacklist=floppy", ["module_blacklist=nouveau"])
    assert added == ("module_blacklist=floppy,nouveau",)
    assert command_line.shared_names("module_blacklist=floppy quiet", added) == (
        "module_blacklist",
    )


@pytest.mark.parametrize("argument", ["a b", 'a="b"', "a=$(reboot)", "a=`b`", "a\\b", "", "a;b"])
def test_what_a_shell_would_read_is_no_argument(argument: str) -> None:
    with pytest.raises(ValueError, match="is not one kernel argument"):
        command_line.check(argument)


@given(st.dictionaries(st.integers(0, 7), st.integers(0, 2048), max_size=8))
def test_huge_pages_are_found_again_in_what_is_written(pages: dict[int, int]) -> None:
    arguments = command_line.huge_page_arguments(pages)
    wanted = {node: count for node, count in pages.items() if count}
    if not wanted:
        assert arguments == ()
        return
    value = command_line.effective(arguments)[f"hugepages@{1 << 30}"]
    assert command_line.pages_by_node(value) == wanted


def test_a_plain_number_of_pages_says_nothing_about_nodes() -> None:
    assert command_line.pages_by_node("512") is None


@pytest.mark.parametrize("line", ["intel_iommu=on,off", "intel_iommu=on intel_iommu=off"])
def test_a_list_that_says_on_and_off_does_not_say_on(line: str) -> None:
    assert command_line.lacking(line, ["intel_iommu=on"]) == ("intel_iommu=on",)
    assert command_line.lacking("intel_iommu=on,sm_on", ["intel_iommu=on"]) == ()


@pytest.mark.parametrize(
    ("cpu", "iommu"), [(Cpu.INTEL, "intel_iommu=on"), (Cpu.AMD, "amd_iommu=on")]
)
def test_the_iommu_is_on_and_passes_through_what_the_host_keeps(cpu: Cpu, iommu: str) -> None:
    """NVIDIA, GPU Operator with Kata Containers: `intel_iommu=on` or `amd_iommu=on`, with `iommu=pt`."""
    arguments = kernel_arguments(
        cpu=cpu, huge_pages_1g_by_numa_node={0: 1}, early_claim=["10de:2330"]
    )
    assert arguments[:2] == (iommu, "iommu=pt")
    assert "vfio-pci.ids=10de:2330" in arguments
    assert [command_line.check(argument) for argument in arguments] == list(arguments)
