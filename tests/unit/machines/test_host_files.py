"""Files and CDI specs on a host: how they differ, and what is never overwritten."""

from typing import Any

import pytest

from gpuclusters.cdi import decide as cdi
from gpuclusters.cdi.decide import LiveCdi
from gpuclusters.cdi.model import CdiSpecInputs
from gpuclusters.core.finding import Level
from gpuclusters.host.capability import findings
from gpuclusters.host.model import HostFileSpec, LiveFile, PciFunction, check_path, sha256_of
from tests.fixtures.made_up import CONNECTION
from tests.fixtures.tables import beside
from tests.unit.machines import test_cdi

CASES = beside(__file__, "host_files.yaml")
PATH, CDI_PATH, GPU = "/etc/x.conf", "/etc/cdi/pgpu.json", "0000:0f:00.0"
FOUND = {GPU: PciFunction(GPU, present=True, iommu_group="27", driver="vfio-pci")}


def live(text: str, mode: str = "0644", owner: str = "root:root") -> LiveFile:
    return LiveFile(text.encode(), mode, owner, sha256_of(text.encode()))


def file(**changes: Any) -> HostFileSpec:
    return HostFileSpec.model_validate(
        {"connection": CONNECTION, "path": PATH, "content": "a\nb\n"} | changes
    )


def spec(**changes: Any) -> CdiSpecInputs:
    return test_cdi.spec(("1", GPU), **changes)


@pytest.mark.parametrize(("there", "written", "code", "level"), CASES["file"])
def test_a_file_that_we_did_not_write_is_never_overwritten(
    there: dict[str, Any] | None, written: bool, code: str, level: str
) -> None:
    (one,) = findings(file(), there and live(**there), written=written)
    assert (one.code, one.level, one.path) == (code, level, (PATH,))
    assert "theirs" not in str(one), "the content may be secret"
    assert [*findings(file(), live("a\nb\n"), written=False)] == []


def test_where_a_file_begins_to_differ_is_told() -> None:
    (one,) = findings(file(), live("a\n"), written=True)
    assert "from line 2 on (2 bytes instead of 4" in one.problem


GOOD = cdi.render(spec(), FOUND)


@pytest.mark.parametrize(("there", "written", "code", "level"), CASES["cdi"])
def test_a_cdi_file_is_ours_by_its_mark(
    there: dict[str, Any] | None, written: bool, code: str, level: str
) -> None:
    found = None
    if there is not None:
        text = there.get("text", GOOD).replace(*there.get("replaced", ("", "")))
        found = live(text, mode=there.get("mode", "0644"))
    (one,) = cdi.findings(spec(), LiveCdi(found, {}, FOUND), written=written)
    assert (one.code, one.level, one.path) == (code, level, (CDI_PATH,))
    assert [*cdi.findings(spec(), LiveCdi(live(GOOD), {}, FOUND), written=written)] == []


def test_a_foreign_cdi_file_is_taken_over_only_where_that_is_asked_for() -> None:
    (one,) = cdi.findings(spec(adopt=True), LiveCdi(live("{}"), {}, FOUND), written=False)
    assert one.level is Level.REPAIR
    told = cdi.effect_differences(spec(adopt=True), LiveCdi(live("{}"), {}, FOUND))
    assert "it has no device 1" in [one.problem for one in told]


def test_a_name_that_is_taken_and_a_gpu_that_is_gone_block_the_file() -> None:
    other = {"/var/run/cdi/a.json": b'{"kind": "nvidia.com/pgpu", "devices": [{"name": "1"}]}'}
    (taken, _) = cdi.findings(spec(), LiveCdi(None, other, FOUND), written=False)
    assert (taken.code, taken.level) == ("cdi.name-taken", Level.BLOCK)
    absent = {GPU: PciFunction(GPU, present=False)}
    (gone,) = cdi.findings(spec(), LiveCdi(live(GOOD), {}, absent), written=True)
    assert (gone.code, gone.path) == ("cdi.function-missing", (GPU,))


@pytest.mark.parametrize("path", ["a", "./a", "/a/../b", "/a/./b", "/a/", "//a", "/a\n", "/", ""])
def test_a_path_that_is_not_where_it_says_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        check_path(path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [*CASES["inputs"], ("content", "x" * (512 * 1024 + 1), "content")],
    ids=lambda text: repr(text)[:30],
)
def test_inputs_of_a_file_that_cannot_work_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        file(**{name: value})


def test_a_mode_may_have_three_digits() -> None:
    assert file(mode="640").mode == "0640"
