"""The kubelet's protocols: what is committed is what protoc makes, and says what Kubernetes says."""

import subprocess
import sys
from pathlib import Path

import pytest

from caas.kubelet_api import deviceplugin_pb2

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = Path("caas/kubelet_api")
FOLDERS = (FOLDER, Path("lab/kubelet_api"))
PROTOS = ("deviceplugin.proto", "podresources.proto")


def test_committed_code_is_what_protoc_makes_of_the_protos(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROJECT / FOLDER}",
            f"--python_out={tmp_path}", f"--pyi_out={tmp_path}",
            *PROTOS,
        ],
        check=True,
    )  # fmt: skip
    made = sorted(tmp_path.iterdir())
    assert len(made) == 4
    for file in made:
        for folder in FOLDERS:
            committed = PROJECT / folder / file.name
            assert committed.read_text() == file.read_text(), f"run `make protos`: {committed}"


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        ("RegisterRequest", {"version": 1, "endpoint": 2, "resource_name": 3, "options": 4}),
        ("DevicePluginOptions", {"pre_start_required": 1, "get_preferred_allocation_available": 2}),
        ("Device", {"ID": 1, "health": 2, "topology": 3}),
        (
            "ContainerPreferredAllocationRequest",
            {"available_deviceIDs": 1, "must_include_deviceIDs": 2, "allocation_size": 3},
        ),
        (
            "ContainerAllocateResponse",
            {"envs": 1, "mounts": 2, "devices": 3, "annotations": 4, "cdi_devices": 5},
        ),
        ("CDIDevice", {"name": 1}),
    ],
)
def test_fields_have_the_numbers_of_kubernetes(message: str, numbers: dict[str, int]) -> None:
    fields = deviceplugin_pb2.DESCRIPTOR.message_types_by_name[message].fields
    assert {field.name: field.number for field in fields} == numbers
