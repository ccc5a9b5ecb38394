"""What forbids to bind PCI functions, what is repaired, and what may be taken over."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuclusters.core.finding import Finding, Level
from gpuclusters.host.model import LiveFile, UnitState, sha256_of
from gpuclusters.vfio import decide
from gpuclusters.vfio.decide import LiveBinding
from gpuclusters.vfio.model import FoundFunction, VfioBindingInputs, VfioFunction

GPU, PCI_ID = "0000:0f:00.0", "10de:2330"
FUNCTION = VfioFunction(address=GPU, pci_id=PCI_ID)
INPUTS = VfioBindingInputs.model_construct(functions=(FUNCTION,))
FILES = decide.wanted_files(INPUTS, "# Written by gpu-clusters\n", "# Written by gpu-clusters\n")
RUNNING = UnitState("enabled", "active")


def on_host(**changes: Any) -> FoundFunction:
    fields: dict[str, Any] = {"present": True, "pci_id": PCI_ID, "pci_class": "030200"}
    return FoundFunction(GPU, **(fields | {"driver": "vfio-pci"} | changes))


def written(content: str, mode: str = "0644") -> LiveFile:
    data = content.encode()
    return LiveFile(data, mode=mode, owner="root:root", sha256=sha256_of(data))


def live(
    function: FoundFunction, unit: UnitState = RUNNING, **files: LiveFile | None
) -> LiveBinding:
    there = {file.path: written(file.content, file.mode) for file in FILES}
    return LiveBinding({GPU: function}, there | files, unit)


def found(state: LiveBinding, gone: Sequence[VfioFunction] = ()) -> list[Finding]:
    inputs = VfioBindingInputs.model_construct(functions=() if gone else (FUNCTION,))
    return list(decide.findings(inputs, gone, FILES, state))


def test_a_bound_function_has_no_findings() -> None:
    assert found(live(on_host())) == []


@pytest.mark.parametrize(
    ("changes", "code", "level"),
    [
        ({"present": False}, "vfio.function-missing", Level.BLOCK),
        ({"header": "7f"}, "vfio.off-the-bus", Level.BLOCK),
        ({"pci_id": "ffff:ffff"}, "vfio.off-the-bus", Level.BLOCK),
        ({"pci_id": "10de:22a3"}, "vfio.other-device", Level.BLOCK),
        ({"pci_class": "060400"}, "vfio.other-class", Level.BLOCK),
        ({"driver": "nvme", "users": ("block:nvme0n1",)}, "vfio.in-use", Level.BLOCK),
        ({"driver": "nouveau"}, "vfio.unbound", Level.REPAIR),
        ({"driver": None}, "vfio.unbound", Level.REPAIR),
    ],
)
def test_a_function_is_taken_only_if_it_is_the_declared_one_and_free(
    changes: dict[str, Any], code: str, level: Level
) -> None:
    (one,) = found(live(on_host(**changes)))
    assert (one.code, one.level, one.path) == (code, level, (GPU,))


def test_a_function_that_left_the_list_is_given_back_unless_it_is_used() -> None:
    (back,) = found(live(on_host()), gone=[FUNCTION])
    assert (back.code, back.step) == ("vfio.left-bound", "release")
    (used,) = found(live(on_host(users=("pid:4711",))), gone=[FUNCTION])
    assert (used.code, used.level) == ("vfio.in-use", Level.BLOCK)
    assert found(live(on_host(driver=None)), gone=[FUNCTION]) == []
    assert found(live(on_host(pci_id="8086:1")), gone=[FUNCTION]) == [], "another device by now"


def test_files_and_unit_are_put_back_and_foreign_files_are_not_overwritten() -> None:
    path = decide.LIST_PATH
    (gone,) = found(live(on_host(), **{path: None}))
    assert (gone.code, gone.step, gone.missing) == ("vfio.file-missing", "files", True)
    (changed,) = found(live(on_host(), **{path: written("# Written by gpu-clusters\n")}))
    assert (changed.code, changed.missing) == ("vfio.file-changed", False)
    (foreign,) = found(live(on_host(), **{path: written("mine\n")}))
    assert (foreign.code, foreign.level) == ("vfio.file-foreign", Level.BLOCK)
    for unit in (UnitState("disabled", "active"), UnitState("enabled", "failed")):
        (one,) = found(live(on_host(), unit))
        assert (one.code, one.step) == ("vfio.unit-inactive", "bind")
    (stale,) = found(live(on_host(), UnitState("enabled", "active", stale=True)))
    assert "from an older file" in stale.problem


def test_functions_on_another_driver_are_no_binding_to_take_over() -> None:
    def differences(state: LiveBinding) -> list[str]:
        return [one.code for one in decide.differences(found(state), FILES, state)]

    nothing = dict.fromkeys((file.path for file in FILES), None)
    off = UnitState("not-found", "inactive")
    assert differences(live(on_host(), off, **nothing)) == [], "bound by other means"
    assert differences(live(on_host(driver="nvidia"), off, **nothing)) == ["vfio.unbound"]
    assert differences(live(on_host(driver="nvidia"), off)) == [], "a run of ours has begun"
