"""Each simulated host has a management controller that answers Redfish over HTTPS."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Any

import httpx
import pytest

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


def get(bmc: BmcEndpoint, path: str, **options: Any) -> httpx.Response:
    context = ssl.create_default_context(cadata=bmc.certificate)
    how = {"auth": (bmc.user, bmc.password), "timeout": PATIENCE_SECONDS, **options}
    return httpx.get(f"{bmc.url}{path}", verify=context, **how)


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
    answer = get(host.endpoint.bmc, INVENTORY, **login)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic")
    assert "Members" not in answer.text
    assert get(host.endpoint.bmc, "/redfish/v1", **login).status_code == 200


def test_a_client_that_trusts_another_certificate_does_not_connect(hosts: Hosts) -> None:
    (dgx,) = hosts(1, platform="dgx-h100")
    (other,) = hosts()
    mixed = replace(dgx.endpoint.bmc, certificate=other.endpoint.bmc.certificate)
    with pytest.raises(httpx.ConnectError, match="certificate"):
        get(mixed, "/redfish/v1")
    # A DGX is another vendor with the same board.
    assert (
        get(dgx.endpoint.bmc, "/redfish/v1").json()["Vendor"]
        == board("dgx-h100").vendor
        == "NVIDIA"
    )


def test_the_journal_says_what_was_asked_but_never_the_password(host: SimulatedHost) -> None:
    host.forget()
    get(host.endpoint.bmc, "/redfish/v1/UpdateService")
    assert [(e["path"], e["status"]) for e in host.journal("redfish")] == [
        ("/redfish/v1/UpdateService", 200)
    ]
    everything = "".join(
        path.read_text(errors="replace")
        for path in HostsFolder(host.folder).host(host.name).path.glob("*.json*")
    )
    assert host.endpoint.bmc.password not in everything
    assert host.endpoint.bmc.password not in repr(host.endpoint)
