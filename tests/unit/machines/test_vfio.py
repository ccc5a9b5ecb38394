"""What forbids to bind PCI functions, what is repaired, and what may be taken over.

Rows are in vfio.yaml."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuclusters.core.finding import Finding
from gpuclusters.host.model import LiveFile, UnitState
from gpuclusters.vfio import decide
from gpuclusters.vfio.decide import LiveBinding
from gpuclusters.vfio.model import FoundFunction, VfioBindingInputs, VfioFunction
from tests.fixtures.made_up import live_file
from tests.fixtures.tables import beside

GPU, PCI_ID = "0000:0f:00.0", "10de:2330"
FUNCTION = VfioFunction(address=GPU, pci_id=PCI_ID)
INPUTS = VfioBindingInputs.model_construct(functions=(FUNCTION,))
FILES = decide.wanted_files(INPUTS, "# Written by gpu-clusters\n", "# Written by gpu-clusters\n")
RUNNING = UnitState("enabled", "active")
CASES = beside(__file__, "vfio.yaml")


def on_host(**changes: Any) -> FoundFunction:
    fields: dict[str, Any] = {"present": True, "pci_id": PCI_ID, "pci_class": "030200"}
    return FoundFunction(GPU, **(fields | {"driver": "vfio-pci"} | changes))


def live(
    function: FoundFunction, unit: UnitState = RUNNING, **files: LiveFile | None
) -> LiveBinding:
    there = {file.path: live_file(file.content, file.mode) for file in FILES}
    return LiveBinding({GPU: function}, there | files, unit)


def found(state: LiveBinding, gone: Sequence[VfioFunction] = ()) -> list[Finding]:
    inputs = VfioBindingInputs.model_construct(functions=() if gone else (FUNCTION,))
    return list(decide.findings(inputs, gone, FILES, state))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case)[:60])
def test_every_difference_is_found_and_nothing_else(case: dict[str, Any]) -> None:
    files: dict[str, LiveFile | None] = {}
    if "list" in case:
        files[decide.LIST_PATH] = live_file(case["list"]) if case["list"] else None
    unit = UnitState(*case.get("unit", ("enabled", "active")))
    state = live(on_host(**case.get("function", {})), unit, **files)
    gone = [FUNCTION] if case.get("gone") else []
    if "found" not in case:
        assert found(state, gone) == []
        return
    (one,) = found(state, gone)
    wanted = dict(case["found"])
    assert wanted.pop("says", "") in one.problem
    assert {name: getattr(one, name) for name in wanted} == wanted
    if "function" in case:
        assert one.path == (GPU,)


def test_functions_on_another_driver_are_no_binding_to_take_over() -> None:
    def differences(state: LiveBinding) -> list[str]:
        return [one.code for one in decide.differences(found(state), FILES, state)]

    nothing = dict.fromkeys((file.path for file in FILES), None)
    off = UnitState("not-found", "inactive")
    assert differences(live(on_host(), off, **nothing)) == [], "bound by other means"
    assert differences(live(on_host(driver="nvidia"), off, **nothing)) == ["vfio.unbound"]
    assert differences(live(on_host(driver="nvidia"), off)) == [], "a run of ours has begun"
