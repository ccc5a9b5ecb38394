"""How a host's boot differs from its inputs, what forbids to change it, and what may be taken over.

Rows are in boot.yaml."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.boot import decide, model
from gpuclusters.boot.decide import BootMethod, BootState, FoundFile
from gpuclusters.boot.model import HostBootInputs
from gpuclusters.core.finding import Finding
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
