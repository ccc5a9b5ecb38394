"""What one machine of a caas cluster declares, without an engine."""

from typing import Any

from components.caas.gpu_host import (
    GpuHost,
    HostPreparation,
    RuntimeDropIns,
)
from components.host_connection import HostConnection
from gpuclusters.boot import model as host_boot
from gpuclusters.boot.model import MachinePreparation
from gpuclusters.fabric.table import Board
from gpuclusters.preflight.model import Expects
from gpuclusters.service_vm.model import LAB_IMAGE
from gpuclusters.vfio import model as vfio
from tests.components.recorder import Recorder, record

CONNECTION = HostConnection(
    host="hgx-01", address="192.0.2.1", port=22, user="ops", host_key="ssh-ed25519 AAAA"
)
VM = {"image": dict(LAB_IMAGE), "fabric_manager": {"version": "595.58.03"}}
SWITCHES = ("0000:0a:00.0", "0000:0b:00.0")


def host_args(
    gpus: int = 8,
    private_key: str | None = None,
    connection: HostConnection = CONNECTION,
    **changes: Any,
) -> dict[str, Any]:
    board = Board({n: f"0000:{n:02x}:00.0" for n in range(1, gpus + 1)}, SWITCHES, ())
    functions = vfio.board_functions(
        gpus=board.gpus, gpu_pci_id="10de:2330", switches=board.switches
    )
    values: dict[str, Any] = {
        "connection": connection,
        "private_key": private_key,
        "wanted": MachinePreparation(
            kernel_arguments=["intel_iommu=on", "iommu=pt"],
            files=host_boot.host_files(),
            functions=functions,
        ),
        "adopt": False,
        "expects": Expects(gpus={str(n): address for n, address in board.gpus.items()}),
        "board": board,
        "service_vm": VM,
        "baseboard": "hgx-h100",
        "fabric": {
            "partitions": [1, 2],
            "fabric_manager_host": "192.168.250.2",
            "guest_driver": "595.58.03",
        },
        "cdi_kind": "nvidia.com/pgpu",
        "vfio": "legacy",
        "drop_ins": RuntimeDropIns(kubelet="for the kubelet", containerd="for containerd"),
    }
    return {**values, **changes}


def declared(*, preview: bool = False, **changes: Any) -> Recorder:
    return record(lambda: GpuHost("hgx-01", **host_args(**changes)), preview=preview)


def test_a_board_is_cut_by_numbers_or_by_sizes(preview: bool) -> None:
    for changes in (
        {"partitions": [1, 2], "layout": None},
        {"partitions": None, "layout": [4, 4]},
    ):
        inputs = {**host_args()["fabric"], **changes}
        (fabric,) = declared(preview=preview, fabric=inputs).of("FabricPartitions").values()
        given = {key: value for key, value in changes.items() if value is not None}
        assert {key: fabric[key] for key in changes if key in fabric} == given


def prepared(**changes: Any) -> Recorder:
    functions = vfio.board_functions(
        gpus={n: f"0000:0{n}:00.0" for n in range(1, 9)},
        gpu_pci_id="10de:2330",
        switches=["0000:0a:00.0"],
    )
    values: dict[str, Any] = {
        "kernel_arguments": ["intel_iommu=on", "iommu=pt"],
        "files": host_boot.host_files(),
        "functions": functions,
        "huge_pages_1g": {0: 8, 1: 8},
        "packages": {"psmisc": None, "ovmf": "2024.02-2"},
    }
    wanted = MachinePreparation(**{**values, **changes})
    args: dict[str, Any] = {"connection": CONNECTION, "private_key": None, "wanted": wanted}
    return record(lambda: HostPreparation("hgx-01", **args))


def test_what_a_machine_boots_with_is_told_in_full_and_it_is_rebooted_only_if_that_is_allowed() -> (
    None
):
    engine = prepared()
    (binding,) = engine.of("VfioBinding").values()
    assert len(binding["functions"]) == 9
    (boot,) = engine.of("HostBoot").values()
    assert boot["huge_pages_1g"] == {"0": 8, "1": 8}
    assert boot["reboot"] == "refuse", "nobody is rebooted who did not ask for it"
    (allowed,) = prepared(may_reboot=True).of("HostBoot").values()
    assert allowed["reboot"] == "allow"
