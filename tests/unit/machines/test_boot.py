"""How a host's boot differs from its inputs, what forbids to change it, and what may be taken over."""

from typing import Any

import pytest

from gpuclusters.boot import decide, model
from gpuclusters.boot.decide import BootMethod, BootState, FoundFile
from gpuclusters.boot.model import HostBootInputs
from gpuclusters.core.finding import Finding, Level
from gpuclusters.host.model import sha256_of
from tests.fixtures.made_up import CONNECTION

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


def found(
    inputs: HostBootInputs = INPUTS, before: tuple[str, ...] = (), **state: Any
) -> list[Finding]:
    return list(decide.findings(inputs, before, AS_DECLARED.model_copy(update=state)))


def test_a_host_that_boots_as_declared_has_no_findings() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("state", "code", "level"),
    [
        ({"method": None}, "boot.loader-unknown", Level.BLOCK),
        ({"files": {PATH: FoundFile(None)}}, "boot.file-missing", Level.REPAIR),
        ({"files": {PATH: FoundFile("0" * 64, ours=True)}}, "boot.file-changed", Level.REPAIR),
        ({"files": {PATH: FoundFile("0" * 64)}}, "boot.file-foreign", Level.BLOCK),
        ({"ours": (), "next_boot": "quiet"}, "boot.next-arguments", Level.REPAIR),
        ({"loader_behind": True}, "boot.next-arguments", Level.REPAIR),
        ({"next_boot": "quiet"}, "boot.next-arguments", Level.REPAIR),
        ({"units_behind": True}, "boot.units", Level.REPAIR),
        ({"initramfs": ""}, "boot.initramfs", Level.REPAIR),
        ({"running": "quiet"}, "boot.running-arguments", Level.REPAIR),
        ({"others": "intel_iommu=off"}, "boot.conflict", Level.BLOCK),
    ],
)
def test_every_difference_has_its_code(state: dict[str, Any], code: str, level: Level) -> None:
    (one,) = found(**state)
    assert (one.code, one.level) == (code, level)


def test_a_file_that_was_ours_is_put_back_and_one_that_left_is_removed() -> None:
    (one,) = found(before=(PATH,), files={PATH: FoundFile("0" * 64)})
    assert (one.code, one.path) == ("boot.file-changed", (PATH,))
    old = "/etc/modprobe.d/old.conf"
    (one,) = found(before=(PATH, old), files={PATH: WRITTEN, old: WRITTEN})
    assert (one.code, one.path, one.step) == ("boot.file-left", (old,), decide.WRITE)
    assert found(before=(old,), files={PATH: WRITTEN, old: FoundFile("0" * 64)}) == [], "not ours"


def test_a_reboot_is_ordered_only_while_nobody_uses_a_gpu() -> None:
    allowed = INPUTS.model_copy(update={"reboot": model.RebootPolicy.ALLOW})
    for users, code in (((4203,), "boot.in-use"), (None, "boot.users-unknown")):
        needed, refusal = found(allowed, running="quiet", device_users=users)
        assert (needed.step, refusal.code, refusal.level) == (decide.REBOOT, code, Level.BLOCK)
        assert found(allowed, device_users=users) == [], "no reboot is needed"


def test_huge_pages_that_the_kernel_did_not_reserve_are_named_by_numa_node() -> None:
    inputs = INPUTS.model_copy(update={"huge_pages_1g": {"0": 8, "1": 8}})
    (one,) = found(inputs, huge_pages_1g={0: 8, 1: 6})
    assert "reserved 6 huge pages of 1 GiB on NUMA node 1, not 8" in one.problem
    assert [f.code for f in found(inputs, running="quiet")] == ["boot.running-arguments"]


def test_grubby_would_replace_a_list_of_somebody_else() -> None:
    inputs = INPUTS.model_copy(update={"kernel_arguments": ("module_blacklist=nouveau",)})
    line = "module_blacklist=floppy"
    state = {"others": line, "ours": (), "next_boot": line, "running": f"{line},nouveau"}
    assert [f.code for f in found(inputs, **state)] == ["boot.next-arguments"]
    (one,) = found(inputs, **state, method=BootMethod.GRUBBY)
    assert (one.code, one.path) == ("boot.conflict", ("module_blacklist",))


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
