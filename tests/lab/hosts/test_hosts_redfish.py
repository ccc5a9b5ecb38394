"""Each simulated host has a management controller that answers Redfish over HTTPS."""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import lab.hosts
from lab.hosts import faults, firmware
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware.board import board
from lab.hosts.model import BmcEndpoint, HostSpec
from tests.fixtures.hosts import Hosts, SimulatedHost

PATIENCE_SECONDS = 120
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"


@pytest.fixture
def host(hosts: Hosts) -> SimulatedHost:
    return hosts()[0]


def client(bmc: BmcEndpoint, **options: Any) -> httpx.Client:
    context = ssl.create_default_context(cadata=bmc.certificate)
    values = {
        "verify": context,
        "auth": (bmc.user, bmc.password),
        "timeout": PATIENCE_SECONDS,
        **options,
    }
    return httpx.Client(base_url=bmc.url, **values)


def get(host: SimulatedHost, path: str, **options: Any) -> httpx.Response:
    with client(host.endpoint.bmc, **options) as connection:
        return connection.get(path)


def versions(host: SimulatedHost) -> dict[str, str]:
    """The inventory as a reader gets it: the collection, then each of its members."""
    with client(host.endpoint.bmc) as connection:
        members = connection.get(INVENTORY).raise_for_status().json()["Members"]
        items = [
            connection.get(member["@odata.id"]).raise_for_status().json() for member in members
        ]
    return {item["Id"]: item["Version"] for item in items}


def test_the_service_root_leads_to_the_inventory(host: SimulatedHost) -> None:
    with client(host.endpoint.bmc) as connection:
        root = connection.get("/redfish/v1/").raise_for_status().json()
        service = connection.get(root["UpdateService"]["@odata.id"]).raise_for_status().json()
        inventory = connection.get(service["FirmwareInventory"]["@odata.id"])
    assert root["@odata.type"].startswith("#ServiceRoot.")
    assert root["Vendor"] == "Supermicro"
    assert inventory.json()["Members@odata.count"] == len(inventory.json()["Members"])
    assert inventory.headers["content-type"].startswith("application/json")
    assert inventory.headers["odata-version"] == "4.0"


def test_the_inventory_has_every_gpu_switch_and_controller(host: SimulatedHost) -> None:
    found = versions(host)
    expected = {f"HGX_FW_GPU_SXM_{n}" for n in range(1, 9)}
    expected |= {f"HGX_FW_NVSwitch_{n}" for n in range(4)}
    expected |= {"HGX_FW_BMC_0", "HGX_FW_ERoT_BMC_0", "HGX_FW_CPLD_0", "HGX_InfoROM_GPU_SXM_8"}
    assert expected <= set(found)
    assert {found[f"HGX_FW_GPU_SXM_{n}"] for n in range(1, 9)} == {"96.00.BC.00.01"}


def test_the_labs_golden_set_accepts_a_new_board_and_covers_every_gpu(host: SimulatedHost) -> None:
    found = versions(host)
    for prefix, accepted in firmware.GOLDEN.items():
        matching = {version for item, version in found.items() if item.startswith(prefix)}
        assert matching
        assert matching <= set(accepted), prefix


@pytest.mark.parametrize("auth", [None, ("admin", "wrong"), ("root", "")])
def test_without_the_login_nothing_but_the_root_is_told(
    host: SimulatedHost, auth: tuple[str, str] | None
) -> None:
    answer = get(host, INVENTORY, auth=auth)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic")
    assert "Members" not in answer.text
    assert get(host, "/redfish/v1", auth=auth).status_code == 200


@pytest.mark.parametrize("header", ["Basic %%%", "Bearer abc", "Basic"])
def test_a_login_that_is_none_is_refused(host: SimulatedHost, header: str) -> None:
    answer = get(host, INVENTORY, auth=None, headers={"Authorization": header})
    assert answer.status_code == 401


def test_what_is_not_there_is_404_and_nothing_can_be_changed(host: SimulatedHost) -> None:
    with client(host.endpoint.bmc) as connection:
        missing = connection.get(f"{INVENTORY}/HGX_FW_GPU_SXM_9")
        changed = connection.post("/redfish/v1/UpdateService", json={"Targets": []})
        head = connection.head(INVENTORY)
        after = connection.get("/redfish/v1")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"].endswith("ResourceNotFound")
    assert (changed.status_code, changed.headers["allow"]) == (405, "GET, HEAD")
    assert (head.status_code, head.text, after.status_code) == (200, "", 200)


def test_a_client_that_trusts_another_certificate_does_not_connect(hosts: Hosts) -> None:
    first, second = hosts(2)
    mixed = replace(first.endpoint.bmc, certificate=second.endpoint.bmc.certificate)
    with client(mixed) as connection, pytest.raises(httpx.ConnectError, match="certificate"):
        connection.get("/redfish/v1")
    assert get(first, "/redfish/v1").status_code == 200


@pytest.mark.parametrize(
    "sent", [b"GARBAGE\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"\x00" * 40_000]
)
def test_garbage_ends_that_connection_alone(host: SimulatedHost, sent: bytes) -> None:
    bmc = host.endpoint.bmc
    context = ssl.create_default_context(cadata=bmc.certificate)
    address = ("127.0.0.1", int(bmc.url.rpartition(":")[2]))
    with (
        socket.create_connection(address, timeout=PATIENCE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(sent)
        answered = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            answered = connection.recv(100)
    assert answered == b""
    assert get(host, "/redfish/v1").status_code == 200


def test_a_silent_controller_times_out_and_comes_back(host: SimulatedHost) -> None:
    with client(host.endpoint.bmc) as connection:
        assert connection.get("/redfish/v1").status_code == 200
        host.inject(faults.BmcSilent())
        with pytest.raises(httpx.TimeoutException):
            connection.get(INVENTORY, timeout=0.5)
        with pytest.raises(httpx.TimeoutException):
            get(host, INVENTORY, timeout=0.5)
    host.clear_faults()
    assert get(host, INVENTORY).status_code == 200


def test_the_fault_of_changed_firmware_goes_when_it_is_cleared(host: SimulatedHost) -> None:
    before = versions(host)
    host.inject(faults.FirmwareChanged(module=5, version="1.2"))
    assert versions(host) == {**before, "HGX_FW_GPU_SXM_5": "1.2"}
    host.clear_faults()
    assert versions(host) == before


def test_the_journal_says_what_was_asked_but_never_the_password(host: SimulatedHost) -> None:
    get(host, "/redfish/v1/UpdateService")
    assert [(e["path"], e["status"]) for e in host.journal("redfish")] == [
        ("/redfish/v1/UpdateService", 200)
    ]
    everything = "".join(
        path.read_text(errors="replace")
        for path in HostsFolder(host.folder).host(host.name).path.glob("*.json*")
    )
    assert host.endpoint.bmc.password not in everything
    assert host.endpoint.bmc.password not in repr(host.endpoint)


def test_port_password_and_certificate_outlive_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "hosts"
    specs = [HostSpec("hgx-01")]
    try:
        before = lab.hosts.start(folder, specs)
        assert (folder / "bmc-password").stat().st_mode & 0o777 == 0o600
        assert (folder / "hgx-01" / "bmc.key").stat().st_mode & 0o777 == 0o600
        lab.hosts.stop(folder)
        assert lab.hosts.start(folder, specs) == before
    finally:
        lab.hosts.stop(folder)


def test_a_dgx_is_another_vendor_with_the_same_board(hosts: Hosts) -> None:
    (host,) = hosts(1, platform="dgx-h100")
    assert get(host, "/redfish/v1").json()["Vendor"] == board("dgx-h100").vendor == "NVIDIA"
