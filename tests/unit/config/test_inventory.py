"""Where machines are: in the configuration, or in the inventory of a running lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuclusters.config.inventory import (
    InventoryError,
    IssuerKeys,
    ResolvedHost,
    lab_folder,
    read_inventory,
    resolve_hosts,
)
from gpuclusters.config.nodes import Bmc
from tests.fixtures.made_up import host_key
from tests.unit.config.documents import PEM, accepted, base, caas, inventory, on_existing


def _inventory(folder: Path, **changes: Any) -> Path:
    return inventory(folder, **changes) / ".lab"


def test_hosts_of_a_running_lab_come_in_the_order_of_the_nodes(tmp_path: Path) -> None:
    config = accepted(caas(nodes=[{"name": "hgx-02"}, {"name": "hgx-01"}])).section
    hosts = resolve_hosts(config, read_inventory(_inventory(tmp_path)))
    bmc = Bmc(url="https://127.0.0.1:5000", user="reader", certificate=PEM)
    assert list(hosts.values()) == [
        ResolvedHost(
            name=name,
            address="127.0.0.1",
            port=port,
            user="operator",
            host_key=host_key(1),
            bmc=bmc,
        )
        for name, port in (("hgx-02", 40002), ("hgx-01", 40001))
    ]


def test_an_inventory_may_say_where_pods_fetch_the_issuers_keys(tmp_path: Path) -> None:
    known = read_inventory(_inventory(tmp_path))
    assert known is not None
    assert known.issuer_keys is None
    keys = {"url": "https://10.96.0.2:4001/keys", "ca-certificate": "PEM"}
    known = read_inventory(_inventory(tmp_path, **{"issuer-keys": keys}))
    assert known is not None
    assert known.issuer_keys == IssuerKeys(url="https://10.96.0.2:4001/keys", ca_certificate="PEM")
    with pytest.raises(InventoryError, match=r"issuer-keys\.ca-certificate: Field required"):
        read_inventory(_inventory(tmp_path, **{"issuer-keys": {"url": "https://10.96.0.2/"}}))


def test_hosts_of_a_lab_that_does_not_run_are_unknown(tmp_path: Path) -> None:
    assert read_inventory(tmp_path) is None
    assert resolve_hosts(accepted(base()).section, None) == {"hgx-01": None, "hgx-02": None}


def test_a_lab_without_the_hosts_of_the_configuration_says_which_it_has(tmp_path: Path) -> None:
    config = accepted(caas(nodes=[{"name": "hgx-01"}, {"name": "hgx-07"}])).section
    with pytest.raises(InventoryError, match="runs hgx-01, hgx-02 and not hgx-07"):
        resolve_hosts(config, read_inventory(_inventory(tmp_path)))


def test_existing_hosts_need_no_lab() -> None:
    document = on_existing("10.0.0.1")
    document["caas"]["hosts"]["machines"][0] |= {"port": 2222, "host-key": f"{host_key(3)} comment"}
    assert resolve_hosts(accepted(document).section, None) == {
        "hgx-01": ResolvedHost(
            name="hgx-01",
            address="10.0.0.1",
            port=2222,
            user="ops",
            host_key=host_key(3),
        )
    }


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"version": 2}', '{"version": 1}', "\udcff"]
)
def test_an_inventory_that_cannot_be_used_names_its_file_and_the_remedy(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "inventory.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InventoryError, match=r"inventory\.json .*gpu-clusters lab start") as raised:
        read_inventory(tmp_path)
    assert len(str(raised.value).splitlines()) == 1


def test_an_inventory_that_cannot_be_opened_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "inventory.json").mkdir()
    with pytest.raises(InventoryError, match=r"inventory\.json cannot be read"):
        read_inventory(tmp_path)


def test_the_labs_folder_is_in_the_project_unless_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPU_CLUSTERS_LAB", raising=False)
    assert lab_folder(Path("/project")) == Path("/project/.lab")
    monkeypatch.setenv("GPU_CLUSTERS_LAB", "/elsewhere/lab")
    assert lab_folder(Path("/project")) == Path("/elsewhere/lab")
