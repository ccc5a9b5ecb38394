"""Each simulated host has a management controller that answers Redfish over HTTPS."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Any

import httpx
import pytest

from lab.hosts import faults, firmware
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware.board import board
from lab.hosts.model import BmcEndpoint
from tests.fixtures.hosts import Hosts, SimulatedHost

PATIENCE_SECONDS = 120
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"


@pytest.fixture(scope="module")
def host(hosts_pool: Any) -> SimulatedHost:
    """One for all: tests leave it without faults."""
    made: SimulatedHost = hosts_pool.add(1, "supermicro-hgx-h100")[0]
    return made


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


def test_the_inventory_is_the_boards_and_the_golden_set_accepts_it(host: SimulatedHost) -> None:
    found = versions(host)
    expected = {f"HGX_FW_GPU_SXM_{n}" for n in range(1, 9)}
    expected |= {f"HGX_FW_NVSwitch_{n}" for n in range(4)}
    expected |= {"HGX_FW_BMC_0", "HGX_FW_ERoT_BMC_0", "HGX_FW_CPLD_0", "HGX_InfoROM_GPU_SXM_8"}
    assert expected <= set(found)
    assert {found[f"HGX_FW_GPU_SXM_{n}"] for n in range(1, 9)} == {"96.00.BC.00.01"}
    for prefix, accepted in firmware.GOLDEN.items():
        matching = {version for item, version in found.items() if item.startswith(prefix)}
        assert matching
        assert matching <= set(accepted), prefix
    host.inject(faults.FirmwareChanged(module=5, version="1.2"))
    assert versions(host) == {**found, "HGX_FW_GPU_SXM_5": "1.2"}
    host.clear_faults()
    assert versions(host) == found


@pytest.mark.parametrize(
    "login",
    [
        {"auth": None},
        {"auth": ("admin", "wrong")},
        {"auth": ("root", "")},
        {"auth": None, "headers": {"Authorization": "Basic %%%"}},
        {"auth": None, "headers": {"Authorization": "Bearer abc"}},
        {"auth": None, "headers": {"Authorization": "Basic"}},
    ],
)
def test_without_the_login_nothing_but_the_root_is_told(
    host: SimulatedHost, login: dict[str, Any]
) -> None:
    answer = get(host, INVENTORY, **login)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic")
    assert "Members" not in answer.text
    assert get(host, "/redfish/v1", **login).status_code == 200


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
    (dgx,) = hosts(1, platform="dgx-h100")
    (other,) = hosts()
    mixed = replace(dgx.endpoint.bmc, certificate=other.endpoint.bmc.certificate)
    with client(mixed) as connection, pytest.raises(httpx.ConnectError, match="certificate"):
        connection.get("/redfish/v1")
    # A DGX is another vendor with the same board.
    assert get(dgx, "/redfish/v1").json()["Vendor"] == board("dgx-h100").vendor == "NVIDIA"


def test_the_journal_says_what_was_asked_but_never_the_password(host: SimulatedHost) -> None:
    host.forget()
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


def test_a_silent_controller_times_out_and_comes_back(host: SimulatedHost) -> None:
    """The last one here: what it asked is answered, and told of in the journal, later."""
    with client(host.endpoint.bmc) as connection:
        assert connection.get("/redfish/v1").status_code == 200
        host.inject(faults.BmcSilent())
        with pytest.raises(httpx.TimeoutException):
            connection.get(INVENTORY, timeout=0.5)
        with pytest.raises(httpx.TimeoutException):
            get(host, INVENTORY, timeout=0.5)
    host.clear_faults()
    assert get(host, INVENTORY).status_code == 200
