"""Configuration as a program gets it from Pulumi: values, secrets, hosts."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncssh
import pulumi
import pytest
import yaml
from pulumi.runtime import config as runtime_config
from pulumi.runtime import mocks

from gpuclusters.config.loader import Loaded, chart_faults, load
from gpuclusters.config.secrets import ConfigError
from tests.fixtures.authority import Authority
from tests.fixtures.made_up import host_key, own
from tests.fixtures.tables import beside
from tests.unit.config.documents import (
    accepted,
    base,
    caas,
    inventory,
    lines,
    on_existing,
    patched,
)

ROOT = Path(__file__).resolve().parents[3]
GIVEN = beside(__file__, "given_by_stacks.yaml")
KUBECONFIG, KEY = (GIVEN["secrets"][key] for key in ("kubeconfig", "controller-ssh-private-key"))
MACHINE = {"port": 2222, "host-key": f"{host_key(3)} comment"}
EXISTING = patched(own(on_existing("10.0.0.1")), {"caas": {"hosts": {"machines": {0: MACHINE}}}})
BMC = {"url": "https://10.21.0.1", "user": "reader"}
FROM_THE_LAB = patched(base(), {"caas": {"leases": None, "api": None, "programs": None}})
ISSUER_KEYS = {"url": "https://10.96.0.2:4001/keys", "ca-certificate": "PEM"}


def _existing(kind: str = "plain", **caas: Any) -> dict[str, Any]:
    """A configuration of machines that exist, of a kind that the file has."""
    document: dict[str, Any] = patched(EXISTING, GIVEN["configurations"][kind])
    return patched(document, {"caas": caas})  # type: ignore[no-any-return]


class _NoResources(mocks.Mocks):
    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        raise AssertionError(args.typ)

    def call(self, args: mocks.MockCallArgs) -> dict[Any, Any]:
        raise AssertionError(args.token)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PULUMI_CONFIG", "PULUMI_CONFIG_SECRET_KEYS", "GPU_CLUSTERS_LAB"):
        monkeypatch.delenv(name, raising=False)
    yield
    runtime_config.set_all_config({}, [])


def _load(
    folder: Path,
    document: dict[str, Any],
    secrets: dict[str, str] | None = None,
    *,
    preview: bool = False,
    also_secret: Sequence[str] = (),
) -> Loaded:
    mocks.set_mocks(_NoResources(), project="gpu-clusters", stack="dev", preview=preview)
    values = {
        f"gpu-clusters:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in {**document, **(secrets or {})}.items()
    }
    hidden = [f"gpu-clusters:{key}" for key in (*(secrets or {}), *also_secret)]
    runtime_config.set_all_config({**values, "gcp:project": "other"}, hidden)
    return load(folder)


def _settled(output: pulumi.Input[Any] | None) -> tuple[Any, bool, bool]:
    """Value, whether it is known, whether it is secret."""
    assert isinstance(output, pulumi.Output)

    async def wait() -> tuple[Any, bool, bool]:
        return await output.future(), await output.is_known(), await output.is_secret()

    return asyncio.get_event_loop().run_until_complete(wait())


def test_a_running_lab_gives_hosts_secrets_and_what_nobody_states(tmp_path: Path) -> None:
    document = patched(FROM_THE_LAB, {"caas": {"nodes": [{"name": "hgx-02"}, {"name": "hgx-01"}]}})
    loaded = _load(inventory(tmp_path, **{"issuer-keys": ISSUER_KEYS}), document)
    secrets = loaded.secrets
    assert (loaded.cluster_type, loaded.section.name) == ("caas", "dev")
    assert [(name, host.port) for name, host in secrets.hosts.items()] == [
        ("hgx-02", 40002),
        ("hgx-01", 40001),
    ]
    bmc = {
        "url": "https://127.0.0.1:5000",
        "user": "reader",
        "certificate": "-----BEGIN CERTIFICATE-----",
    }
    assert secrets.hosts["hgx-01"].bmc == bmc
    assert secrets.issuer == "http://127.0.0.1:4000"
    assert secrets.issuer_keys == {"url": ISSUER_KEYS["url"], "ca_certificate": "PEM"}
    assert secrets.golden_firmware == {"HGX_FW_GPU": ("1.0",)}
    assert secrets.api_certificate == "CHAIN"
    for output, text in (
        (secrets.kubeconfig, "kind: Config"),
        (secrets.ssh_private_key, "PEM"),
        (secrets.controller_ssh_private_key, "PEM"),
        (secrets.bmc_password, "calvin"),
        (secrets.api_private_key, "KEY"),
    ):
        assert _settled(output) == (text, True, True)


def test_what_a_configuration_states_outweighs_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_CLUSTERS_LAB", str(tmp_path / ".lab"))
    inventory(tmp_path, **{"issuer-keys": ISSUER_KEYS})
    secrets = _load(
        Path("/project"), caas(leases={"golden-firmware": {"versions": {"A": ["1"]}}})
    ).secrets
    assert secrets.issuer == "https://id.example.com"
    assert secrets.golden_firmware == {"A": ("1",)}
    assert secrets.issuer_keys is None, "those of the lab's own issuer"
    elsewhere = caas(api={"jwks-url": "https://id.corp.test/keys"})
    assert _load(Path("/project"), elsewhere).secrets.issuer_keys is None


def test_a_preview_without_a_lab_knows_neither_hosts_nor_secrets(tmp_path: Path) -> None:
    loaded = _load(tmp_path, base(), preview=True)
    assert _settled(loaded.secrets.hosts["hgx-02"].address) == (None, False, False)
    assert _settled(loaded.secrets.kubeconfig) == (None, False, True)
    assert _settled(loaded.secrets.ssh_private_key) == (None, False, True)


def test_existing_machines_take_their_secrets_from_the_stack(tmp_path: Path) -> None:
    loaded = _load(tmp_path, _existing(), _needed({"ssh-private-key": KEY}))
    assert _settled(loaded.secrets.kubeconfig) == (KUBECONFIG, True, True)
    assert _settled(loaded.secrets.ssh_private_key) == (KEY, True, True)
    host = loaded.secrets.hosts["hgx-01"]
    assert (host.address, host.port, host.user) == ("10.0.0.1", 2222, "ops")
    assert host.host_key == host_key(3)
    assert host.bmc is None
    left_to_the_agent = _load(tmp_path, _existing(), _needed({}))
    assert left_to_the_agent.secrets.ssh_private_key is None
    full = _load(tmp_path, _existing("full"), _needed({"bmc-password": "calvin"})).secrets
    assert _settled(full.bmc_password) == ("calvin", True, True)
    assert full.golden_firmware == {"A": ("1",)}
    assert full.hosts["hgx-01"].bmc == {**BMC, "certificate": None}


def _needed(changes: dict[str, str | None]) -> dict[str, str]:
    """The secrets that such a stack needs, others for some."""
    return {key: text for key, text in (GIVEN["secrets"] | changes).items() if text is not None}


@pytest.mark.parametrize("case", GIVEN["refused"], ids=lambda case: case["name"])
def test_what_an_update_cannot_do_with_is_refused_and_no_secret_shown(
    tmp_path: Path, case: dict[str, Any]
) -> None:
    document, secrets = patched(base(), case.get("lab", {})), {}
    if "lab" not in case:
        document = patched(_existing(case.get("kind", "plain")), case.get("document", {}))
        secrets = _needed(case.get("secrets", {}))
    with pytest.raises(ConfigError, match=case["says"]) as raised:
        _load(inventory(tmp_path), document, secrets, also_secret=case.get("encrypted", ()))
    assert "hunter2" not in str(raised.value)


def test_a_lab_that_does_not_run_or_has_lost_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lab is not running") as raised:
        _load(tmp_path, base())
    assert "run `make up` or `gpu-clusters lab start`" in str(raised.value)
    (inventory(tmp_path) / "kubeconfig").unlink()
    with pytest.raises(ConfigError, match="kubeconfig cannot be read"):
        _load(tmp_path, base())


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b'{"version": 2}', b'{"version": 1}', b"\xff", {"issuer-keys": {}}],
)
def test_an_inventory_that_cannot_be_used_names_its_file_and_the_remedy(
    tmp_path: Path, text: bytes | dict[str, Any]
) -> None:
    file = inventory(tmp_path) / ".lab" / "inventory.json"
    if isinstance(text, dict):
        text = json.dumps(json.loads(file.read_text()) | text).encode()
    file.write_bytes(text)
    with pytest.raises(ConfigError, match=r"inventory\.json .*gpu-clusters lab start") as raised:
        _load(tmp_path, base())
    assert len(str(raised.value).splitlines()) == 1
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match=r"inventory\.json cannot be read"):
        _load(tmp_path, base())


@pytest.fixture
def pairs(tmp_path: Path) -> list[tuple[str, str]]:
    """Two certificates of one name, with their keys."""
    return [Authority(tmp_path).pair("api.corp.test") for _ in range(2)]


@pytest.mark.parametrize(("key", "wrong"), GIVEN["keys-of-certificates"])
def test_a_given_certificate_has_its_key(
    tmp_path: Path, pairs: list[tuple[str, str]], key: str | None, wrong: str
) -> None:
    (chain, right), (_, other) = pairs
    document = _existing("certified", api={"exposure": {"certificate": {"chain": chain}}})
    secrets = _load(tmp_path, document, _needed({"api-private-key": right})).secrets
    assert secrets.api_certificate == chain
    assert _settled(secrets.api_private_key) == (right, True, True)
    key = other if key == "of another" else key
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, document, _needed({"api-private-key": key}))
    (fault,) = refused.value.findings
    assert str(refused.value).startswith(f"Pulumi.dev.yaml: api-private-key: {wrong}")
    assert "hunter2" not in str(fault)


@pytest.mark.parametrize("key", ["bmc-password", "api-private-key"])
def test_a_secret_that_nobody_uses_is_warned_of(tmp_path: Path, key: str) -> None:
    loaded = _load(tmp_path, _existing(), _needed({key: KEY}))
    assert loaded.warnings[-1].path == (key,)
    loaded = _load(inventory(tmp_path), base(), {"kubeconfig": KUBECONFIG})
    assert [warning.path for warning in loaded.warnings] == [("kubeconfig",)], "the lab has its own"


def test_all_faults_come_in_one_error_that_pulumi_prints_without_a_traceback(
    tmp_path: Path,
) -> None:
    document = {**caas(partition_layout=[3], platform="x"), "kubeconfig": "plain"}
    with pytest.raises(pulumi.RunError) as raised:
        _load(tmp_path, document)
    said = str(raised.value).splitlines()
    assert [line.split(": ")[1] for line in said] == ["caas.platform", "kubeconfig"]
    assert all(line.startswith("Pulumi.dev.yaml: ") for line in said)


def test_a_key_that_no_machine_on_google_cloud_would_let_in_is_refused(tmp_path: Path) -> None:
    mine, other = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    section = yaml.safe_load((ROOT / "Pulumi.usernetes-v100.yaml").read_text())["config"]
    section = section["gpu-clusters:usernetes"]
    section["hosts"]["authorized-keys"] = [mine.export_public_key().decode().strip()]
    document = {"cluster-type": "usernetes", "usernetes": section}

    def load_with(key: asyncssh.SSHKey) -> Loaded:
        text = key.export_private_key().decode()
        return _load(tmp_path, document, {"ssh-private-key": text}, preview=True)

    assert load_with(mine).cluster_type == "usernetes"
    with pytest.raises(ConfigError, match=r"ssh-private-key: fits none of hosts\.authorized-keys"):
        load_with(other)


def test_a_chart_beside_the_stack_is_the_one_that_was_checked(tmp_path: Path) -> None:
    path, digest = "charts/kata.tgz", hashlib.sha256(b"a chart").hexdigest()
    chart = {"source": "file", "path": path, "sha256": digest}

    def said(**changes: Any) -> list[str]:
        return lines(chart_faults(accepted(caas(**changes)).section, tmp_path))

    (absent,) = said(storage={"csi-driver-chart": chart})
    assert "caas.storage.csi-driver-chart.path: cannot be read: no such file" in absent
    assert "helm pull" in absent
    (tmp_path / "charts").mkdir()
    (tmp_path / path).write_bytes(b"something else")
    (other,) = said(kata={"chart": chart})
    assert other.startswith(f"caas.kata.chart.sha256: is not the checksum of {path}")
    assert hashlib.sha256(b"something else").hexdigest() in other
    (tmp_path / path).write_bytes(b"a chart")
    assert said(kata={"chart": chart}, storage={"csi-driver-chart": chart}) == []
    assert said(kata={"chart": {"source": "registry"}}) == []
