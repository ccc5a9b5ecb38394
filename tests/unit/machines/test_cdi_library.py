"""Our rules of CDI against the CDI project's own library, the one that containerd 2 reads specs with."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.cdi import decide as cdi
from gpuclusters.host.model import PciFunction
from tests.fixtures import go_programs
from tests.fixtures.cdi_rules import VERSIONS, faults_in
from tests.unit.machines.test_cdi import spec

pytestmark = pytest.mark.timeout(go_programs.BUILD_SECONDS + 60)

SOURCE = Path(__file__).resolve().parents[2] / "cdi_reader"
EDITS: dict[str, list[Any]] = yaml.safe_load((Path(__file__).parent / "cdi_edits.yaml").read_text())


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


def rendered(backend: str) -> str:
    addresses = [f"0000:{bus:02x}:00.0" for bus in range(1, 9)]
    devices = [(str(n), a) for n, a in enumerate(addresses, 1)]
    found = {
        a: PciFunction(a, True, str(n), "vfio-pci", vfio_device=f"vfio{n}")
        for n, a in enumerate(addresses)
    }
    return cdi.render(spec(*devices, path="/var/run/cdi/nvidia.com-pgpu.json", vfio=backend), found)


@pytest.mark.parametrize("backend", ["legacy", "iommufd"])
def test_what_we_write_is_read_and_gives_a_container_its_nodes(
    backend: str, reader: Path, tmp_path: Path
) -> None:
    text = rendered(backend)
    (tmp_path / "nvidia.com-pgpu.json").write_text(text)
    said = read(reader, tmp_path)
    assert said["errors"] == {}
    assert said["devices"] == [f"nvidia.com/pgpu={n}" for n in range(1, 9)]

    # The library looks the nodes up, so nodes that every machine has stand for ours.
    shared = {"legacy": "/dev/vfio/vfio", "iommufd": "/dev/iommu"}[backend]
    own = {"legacy": "/dev/vfio/2", "iommufd": "/dev/vfio/devices/vfio2"}[backend]
    text = text.replace(f'"{shared}"', '"/dev/null"').replace(f'"{own}"', '"/dev/zero"')
    (tmp_path / "nvidia.com-pgpu.json").write_text(text)
    said = read(reader, tmp_path, "nvidia.com/pgpu=3")
    assert sorted(said["nodes"]) == ["/dev/null", "/dev/zero"], said


def _values(random_: random.Random) -> dict[str, Any]:
    """Container edits, sound or not."""
    names = random_.sample(sorted(EDITS), random_.choice([0, 1, 1, 1, 2]))
    return {name: random_.choice(EDITS[name]) for name in names}


def _document(number: int, random_: random.Random) -> dict[str, Any]:
    """A spec, sound or not; each is of another kind, so that no two define the same device."""
    pick = random_.choice
    document: dict[str, Any] = {
        "cdiVersion": pick([*VERSIONS, *VERSIONS[-3:], "0.9.0"]),
        "kind": pick([f"v{number}.com/c"] * 8 + [f"v{number}.com/c.d", f"{number}v/c", "c"]),
        "devices": [
            {"name": pick(["gpu", "gpu", "6", "a.b:c", "-", "a b"]), "containerEdits": edits}
            for edits in [pick([{"env": ["A=b"]}, _values(random_)])]
        ],
    }
    if random_.random() < 0.3:
        document["annotations"] = {pick(["a.b/c", "a", "a/b/c", "-x"]): "d"}
    if random_.random() < 0.4:
        document["containerEdits"] = _values(random_)
    if random_.random() < 0.1:
        document["devices"] *= pick([0, 2])
    if random_.random() < 0.05:
        document["colour"] = "red"
    return document


def test_our_rules_refuse_what_the_library_refuses_and_nothing_else(
    reader: Path, tmp_path: Path
) -> None:
    documents = {f"{n:03}.json": _document(n, random.Random(n)) for n in range(600)}
    for name, document in documents.items():
        (tmp_path / name).write_text(json.dumps(document))
    errors = {Path(path).name: said for path, said in read(reader, tmp_path)["errors"].items()}
    # Names of annotations are in the specification; the library has stopped to look at them.
    ours = {
        name: [fault for fault in faults_in(document) if ": annotation " not in fault]
        for name, document in documents.items()
    }
    apart = [
        (documents[name], errors.get(name), found)
        for name, found in ours.items()
        if bool(errors.get(name)) != bool(found)
    ]
    assert not apart, "\n".join(map(str, apart[:9]))
    assert 100 < len(errors) < 500  # both kinds are there
