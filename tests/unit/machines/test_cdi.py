"""CDI: the rules of the specification, and the file that we write, read by the runtimes' own library."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gpuclusters.cdi import decide as cdi
from gpuclusters.cdi import model
from gpuclusters.cdi.decide import LiveCdi
from gpuclusters.core.finding import Level
from gpuclusters.host.model import PciFunction
from tests.fixtures import go_programs
from tests.fixtures.made_up import CONNECTION, live_file
from tests.fixtures.tables import beside

pytestmark = pytest.mark.timeout(go_programs.BUILD_SECONDS + 60)

SOURCE = Path(__file__).resolve().parents[2] / "cdi_reader"


@pytest.fixture(scope="module")
def reader() -> Path:
    """The program that reads specs with the library."""
    return go_programs.built("cdi-reader", SOURCE)


def read(reader: Path, folder: Path, *names: str) -> dict[str, Any]:
    """What the library says about the specs in a folder."""
    done = subprocess.run(
        [str(reader), str(folder), *names], capture_output=True, text=True, timeout=60, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def spec(*devices: tuple[str, str], **changes: Any) -> model.CdiSpecInputs:
    return model.CdiSpecInputs.model_validate(
        {
            "connection": CONNECTION,
            "path": "/etc/cdi/pgpu.json",
            "kind": "nvidia.com/pgpu",
            "devices": [{"name": n, "pci_address": a} for n, a in devices],
        }
        | changes
    )


def vfio(
    address: str, group: str | None = "12", driver: str | None = "vfio-pci", own: str | None = None
) -> PciFunction:
    return PciFunction(address, True, group, driver, vfio_device=own)


CASES = beside(__file__, "cdi.yaml")
A, B = "0000:0f:00.0", "0000:10:00.0"


@pytest.mark.parametrize(("check", "texts"), CASES["allowed"])
def test_what_the_specification_allows_is_taken(check: str, texts: list[str]) -> None:
    assert [getattr(model, check)(text) for text in texts] == texts


@pytest.mark.parametrize(
    ("check", "words", "texts"),
    [*CASES["refused"], ("check_kind", "vendor|class", ["v/" + "c" * 64, "v" * 254 + "/c"])],
)
def test_what_no_runtime_reads_is_refused(check: str, words: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=words):
            getattr(model, check)(text)


GROUPS = st.lists(st.integers(1, 4000), min_size=1, max_size=8, unique=True)


@settings(deadline=None, max_examples=60)
@given(GROUPS)
def test_what_we_render_is_ours_and_reads_back(groups: list[int]) -> None:
    addresses = [f"0000:{n:02x}:00.0" for n in range(len(groups))]
    wanted = spec(*((str(n + 1), a) for n, a in enumerate(addresses)))
    found = {a: vfio(a, str(g)) for a, g in zip(addresses, groups, strict=True)}
    content = cdi.render(wanted, found).encode()
    assert cdi.is_ours(content)
    kind, devices = cdi.devices_in(content)
    assert (kind, [d["pci_address"] for d in devices]) == (wanted.kind, addresses)
    assert content == cdi.render(wanted, dict(reversed(list(found.items())))).encode()


def test_two_devices_of_one_iommu_group_cannot_be_told_apart() -> None:
    (one,) = cdi.device_findings(spec(("1", A), ("2", B)), {A: vfio(A), B: vfio(B)})
    assert one.code == "cdi.shared-iommu-group"
    assert "both in IOMMU group 12" in one.problem


BOOT_PATH = "/var/run/cdi/pgpu.json"


@pytest.mark.parametrize(("vfio_backend", "own_devices", "nodes"), CASES["nodes"])
def test_both_forms_of_vfio_are_read_and_give_a_container_its_nodes(
    vfio_backend: str, own_devices: bool, nodes: list[str], reader: Path, tmp_path: Path
) -> None:
    wanted = spec(("1", A), ("2", B), path=BOOT_PATH, vfio=vfio_backend)
    found = {
        a: vfio(a, str(20 + n), own=f"vfio{n}" if own_devices else None)
        for n, a in enumerate((A, B), start=1)
    }
    text = cdi.render(wanted, found)
    file = tmp_path / "nvidia.com-pgpu.json"
    file.write_text(text)
    said = read(reader, tmp_path)
    assert (said["errors"], said["devices"]) == ({}, ["nvidia.com/pgpu=1", "nvidia.com/pgpu=2"])
    rendered = json.loads(text)
    parts = [*rendered["devices"], rendered]
    assert [n["path"] for p in parts for n in p["containerEdits"]["deviceNodes"]] == nodes

    # The library looks the nodes up, so nodes that every machine has stand for ours.
    _, own, shared = nodes
    file.write_text(text.replace(f'"{shared}"', '"/dev/null"').replace(f'"{own}"', '"/dev/zero"'))
    said = read(reader, tmp_path, "nvidia.com/pgpu=2")
    assert sorted(said["nodes"]) == ["/dev/null", "/dev/zero"], said


def test_iommufd_that_the_host_lacks_is_refused_by_device() -> None:
    wanted = spec(("1", A), ("2", B), path=BOOT_PATH, vfio="iommufd")
    (one,) = cdi.device_findings(wanted, {A: vfio(A, "21", own="vfio1"), B: vfio(B, "22")})
    assert one.code == "cdi.no-iommufd"
    assert f"device 2: {B} has no" in one.problem
    assert "CONFIG_IOMMUFD" in one.remedy


@pytest.mark.parametrize("backend", ["auto", "iommufd"])
def test_numbers_that_change_at_boot_are_not_written_where_they_outlive_it(backend: str) -> None:
    with pytest.raises(ValidationError, match="numbered anew at every boot"):
        spec(("1", A), vfio=backend)


def test_each_device_that_cannot_be_passed_on_is_named_with_what_to_do() -> None:
    found = {
        A: vfio(A, driver="nvidia"),
        B: vfio(B, group=None),
        "0000:ff:00.0": PciFunction("0000:ff:00.0", present=False),
    }
    wanted = spec(("1", A), ("2", B), ("3", "0000:ff:00.0"))
    said = "\n".join(map(str, cdi.device_findings(wanted, found)))
    for part in (
        f"{A} is bound to nvidia, not to vfio-pci",
        f"{B} is in no IOMMU group",
        "no PCI function 0000:ff:00.0",
        "driverctl",
        "intel_iommu=on",
        "lspci",
    ):
        assert part in said


def test_another_file_with_the_same_name_is_a_conflict_but_our_own_is_not() -> None:
    wanted = spec(("1", A), ("2", B))
    others = {
        wanted.path: b"kind: nvidia.com/pgpu\ndevices: [{name: '1'}]",
        "/etc/cdi/x.yaml": b"kind: nvidia.com/pgpu\ndevices: [{name: '2'}, 7]",
        "/etc/cdi/other-kind.json": b'{"kind": "nvidia.com/gpu", "devices": [{"name": "1"}]}',
        "/etc/cdi/broken.json": b"{",
        "/etc/cdi/list.yaml": b"[]",
    }
    assert cdi.conflicts(wanted, others) == ["nvidia.com/pgpu=2 in /etc/cdi/x.yaml"]


@pytest.mark.parametrize(
    "devices",
    [[("1", A), ("1", B)], [("1", A), ("2", A)], []],
    ids=["name twice", "address twice", "none"],
)
def test_inputs_with_doubtful_devices_are_refused(devices: list[tuple[str, str]]) -> None:
    with pytest.raises(ValidationError):
        spec(*devices)


FOUND = {A: vfio(A, "27")}
GOOD = cdi.render(spec(("1", A)), FOUND)


@pytest.mark.parametrize(("there", "written", "code", "level"), CASES["files"])
def test_a_cdi_file_is_ours_by_its_mark(
    there: dict[str, Any] | None, written: bool, code: str, level: str
) -> None:
    found = None
    if there is not None:
        text = there.get("text", GOOD).replace(*there.get("replaced", ("", "")))
        found = live_file(text, mode=there.get("mode", "0644"))
    (one,) = cdi.findings(spec(("1", A)), LiveCdi(found, {}, FOUND), written=written)
    assert (one.code, one.level, one.path) == (code, level, (spec(("1", A)).path,))
    assert [
        *cdi.findings(spec(("1", A)), LiveCdi(live_file(GOOD), {}, FOUND), written=written)
    ] == []


def test_a_foreign_cdi_file_is_taken_over_only_where_that_is_asked_for() -> None:
    (one,) = cdi.findings(
        spec(("1", A), adopt=True), LiveCdi(live_file("{}"), {}, FOUND), written=False
    )
    assert one.level is Level.REPAIR
    told = cdi.effect_differences(spec(("1", A), adopt=True), LiveCdi(live_file("{}"), {}, FOUND))
    assert "it has no device 1" in [one.problem for one in told]


def test_a_name_that_is_taken_and_a_gpu_that_is_gone_block_the_file() -> None:
    other = {"/var/run/cdi/a.json": b'{"kind": "nvidia.com/pgpu", "devices": [{"name": "1"}]}'}
    (taken, _) = cdi.findings(spec(("1", A)), LiveCdi(None, other, FOUND), written=False)
    assert (taken.code, taken.level) == ("cdi.name-taken", Level.BLOCK)
    absent = {A: PciFunction(A, present=False)}
    (gone,) = cdi.findings(spec(("1", A)), LiveCdi(live_file(GOOD), {}, absent), written=True)
    assert (gone.code, gone.path) == ("cdi.function-missing", (A,))
