"""Configuration as a program gets it from Pulumi: values, secrets, hosts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pulumi
import pytest
import yaml
from pulumi.runtime import config as runtime_config
from pulumi.runtime import mocks

from gpuclusters.config.loader import Loaded, load
from gpuclusters.config.secrets import ConfigError
from tests.fixtures.authority import Authority
from tests.fixtures.made_up import own
from tests.unit.config.documents import base, caas, inventory, on_existing, patched

ROOT = Path(__file__).resolve().parents[3]
EXISTING = own(on_existing("10.0.0.1"))
KUBECONFIG = "kind: Config\nclusters: []\n"
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
NEEDED = {"kubeconfig": KUBECONFIG, "controller-ssh-private-key": KEY}
FULL = patched(
    EXISTING,
    {
        "caas": {
            "leases": {"recycle-policy": "full", "golden-firmware": {"versions": {"A": ["1"]}}},
            "nodes": [
                {"name": "hgx-01", "bmc": {"url": "https://10.21.0.1", "user": "reader"}},
            ],
        }
    },
)


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
    also_secret: tuple[str, ...] = (),
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


def test_a_running_lab_gives_hosts_kubeconfig_and_key(tmp_path: Path) -> None:
    loaded = _load(inventory(tmp_path), base())
    assert loaded.cluster_type == "caas"
    assert loaded.section.name == "dev"
    assert loaded.secrets.hosts["hgx-01"].port == 40001
    assert _settled(loaded.secrets.kubeconfig) == ("kind: Config", True, True)
    assert _settled(loaded.secrets.ssh_private_key) == ("PEM", True, True)


def test_a_preview_without_a_lab_knows_neither_hosts_nor_secrets(tmp_path: Path) -> None:
    loaded = _load(tmp_path, base(), preview=True)
    assert _settled(loaded.secrets.hosts["hgx-02"].address) == (None, False, False)
    assert _settled(loaded.secrets.kubeconfig) == (None, False, True)
    assert _settled(loaded.secrets.ssh_private_key) == (None, False, True)


def test_an_update_without_a_lab_says_how_to_start_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lab is not running") as raised:
        _load(tmp_path, base())
    assert "run `make up` or `gpu-clusters lab start`" in str(raised.value)


def test_a_lab_that_lacks_a_host_is_named(tmp_path: Path) -> None:
    document = caas(nodes=[{"name": "hgx-01"}, {"name": "hgx-09"}])
    with pytest.raises(ConfigError, match="not hgx-09"):
        _load(inventory(tmp_path), document)


def test_a_lab_whose_files_are_gone_is_named(tmp_path: Path) -> None:
    (inventory(tmp_path) / "kubeconfig").unlink()
    with pytest.raises(ConfigError, match="kubeconfig cannot be read"):
        _load(tmp_path, base())


def test_existing_machines_take_their_secrets_from_the_stack(tmp_path: Path) -> None:
    loaded = _load(tmp_path, EXISTING, {**NEEDED, "ssh-private-key": KEY})
    assert _settled(loaded.secrets.kubeconfig) == (KUBECONFIG, True, True)
    assert _settled(loaded.secrets.ssh_private_key) == (KEY, True, True)
    assert loaded.secrets.hosts["hgx-01"].user == "ops"


def test_a_key_that_file_or_agent_have_is_left_to_them(tmp_path: Path) -> None:
    loaded = _load(tmp_path, EXISTING, NEEDED)
    assert loaded.secrets.ssh_private_key is None


def test_controllers_need_a_key_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="config set --secret controller-ssh-private-key"):
        _load(tmp_path, EXISTING, {"kubeconfig": KUBECONFIG, "ssh-private-key": KEY})


def test_full_recycling_of_existing_machines_needs_the_password_of_their_bmcs(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"recycle-policy is full .* --secret bmc-password"):
        _load(tmp_path, FULL, NEEDED)
    loaded = _load(tmp_path, FULL, {**NEEDED, "bmc-password": "calvin"})
    assert _settled(loaded.secrets.bmc_password) == ("calvin", True, True)
    assert loaded.secrets.golden_firmware == {"A": ("1",)}
    bmc = {"url": "https://10.21.0.1", "user": "reader", "certificate": None}
    assert loaded.secrets.hosts["hgx-01"].bmc == bmc


def test_a_password_that_nobody_uses_is_warned_of(tmp_path: Path) -> None:
    loaded = _load(tmp_path, EXISTING, {**NEEDED, "bmc-password": "calvin"})
    assert loaded.warnings[-1].path == ("bmc-password",)
    assert loaded.secrets.bmc_password is None


def test_a_lab_brings_issuer_golden_firmware_and_bmcs(tmp_path: Path) -> None:
    document = patched(base(), {"caas": {"leases": None, "api": None, "programs": None}})
    secrets = _load(inventory(tmp_path), document).secrets
    assert secrets.issuer == "http://127.0.0.1:4000"
    assert secrets.golden_firmware == {"HGX_FW_GPU": ("1.0",)}
    assert _settled(secrets.bmc_password) == ("calvin", True, True)
    assert _settled(secrets.controller_ssh_private_key) == ("PEM", True, True)
    assert secrets.api_certificate == "CHAIN"
    assert _settled(secrets.api_private_key) == ("KEY", True, True)
    bmc = secrets.hosts["hgx-01"].bmc
    assert isinstance(bmc, dict)
    assert bmc["url"] == "https://127.0.0.1:5000"


def _with_certificate(chain: str) -> Any:
    given = {"source": "given", "chain": chain}
    exposure = {"kind": "load-balancer", "host": "api.corp.test", "certificate": given}
    return patched(EXISTING, {"caas": {"api": {"exposure": exposure}}})


def test_a_given_certificate_has_its_key(tmp_path: Path) -> None:
    chain, key = Authority(tmp_path).pair(["api.corp.test"])
    secrets = _load(tmp_path, _with_certificate(chain), {**NEEDED, "api-private-key": key}).secrets
    assert secrets.api_certificate == chain
    assert _settled(secrets.api_private_key) == (key, True, True)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        (None, "is missing, while caas.api.exposure.certificate.source is given (got nothing)"),
        ("of another", "is not the key of the certificate in caas.api.exposure.certificate.chain"),
        (
            "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n",
            "is not a private key in PEM without a passphrase",
        ),
        ("hunter2", "is not the text of a private key in PEM"),
    ],
)
def test_a_given_certificate_without_its_key_is_refused(
    tmp_path: Path, key: str | None, wrong: str
) -> None:
    chain, _ = Authority(tmp_path).pair(["api.corp.test"])
    if key == "of another":
        key = Authority(tmp_path).pair(["api.corp.test"])[1]
    secrets = NEEDED if key is None else {**NEEDED, "api-private-key": key}
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, _with_certificate(chain), secrets)
    (fault,) = refused.value.findings
    assert str(refused.value).startswith(f"Pulumi.dev.yaml: api-private-key: {wrong}")
    assert "hunter2" not in str(fault)


def test_a_key_that_belongs_to_no_certificate_is_warned_of(tmp_path: Path) -> None:
    _, key = Authority(tmp_path).pair(["api.corp.test"])
    loaded = _load(tmp_path, EXISTING, {**NEEDED, "api-private-key": key})
    assert loaded.warnings[-1].path == ("api-private-key",)


def test_a_lab_says_where_pods_fetch_the_keys_of_its_issuer_and_only_of_its_own(
    tmp_path: Path,
) -> None:
    keys = {"url": "https://10.96.0.2:4001/keys", "ca-certificate": "PEM"}
    of_the_lab = patched(base(), {"caas": {"leases": None, "api": None, "programs": None}})
    folder = inventory(tmp_path, **{"issuer-keys": keys})
    assert _load(folder, of_the_lab).secrets.issuer_keys == {
        "url": "https://10.96.0.2:4001/keys",
        "ca_certificate": "PEM",
    }
    assert _load(folder, base()).secrets.issuer_keys is None
    elsewhere = caas(api={"jwks-url": "https://id.corp.test/keys"})
    assert _load(folder, elsewhere).secrets.issuer_keys is None


def test_what_a_configuration_states_outweighs_theinventory(tmp_path: Path) -> None:
    document = caas(leases={"golden-firmware": {"versions": {"B": ["2"]}}})
    secrets = _load(inventory(tmp_path), document).secrets
    assert secrets.issuer == "https://id.example.com"
    assert secrets.golden_firmware == {"B": ("2",)}


def test_an_existing_cluster_needs_its_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pulumi config set --secret kubeconfig"):
        _load(tmp_path, EXISTING)


def test_a_secret_in_clear_is_refused_and_not_shown(tmp_path: Path) -> None:
    document = {**EXISTING, "kubeconfig": "hunter2"}
    with pytest.raises(ConfigError, match="kubeconfig: is not encrypted") as raised:
        _load(tmp_path, document)
    assert "hunter2" not in str(raised.value)


def test_a_section_that_was_set_as_a_secret_is_refused_and_not_shown(tmp_path: Path) -> None:
    document = caas(name="hunter2-BAD")
    with pytest.raises(ConfigError, match="caas: is encrypted") as raised:
        _load(inventory(tmp_path), document, also_secret=("caas",))
    assert "hunter2" not in str(raised.value)


def test_all_faults_come_in_one_error_that_pulumi_prints_without_a_traceback(
    tmp_path: Path,
) -> None:
    document = {**caas(partition_layout=[3], platform="x"), "kubeconfig": "plain"}
    with pytest.raises(pulumi.RunError) as raised:
        _load(tmp_path, document)
    lines = str(raised.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["caas.platform", "kubeconfig"]
    assert all(line.startswith("Pulumi.dev.yaml: ") for line in lines)


def test_the_values_of_a_stack_arrive_through_the_environment_as_the_engine_passes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mocks.set_mocks(_NoResources(), project="gpu-clusters", stack="dev", preview=False)
    values = {
        "gpu-clusters:cluster-type": "caas",
        "gpu-clusters:caas": json.dumps(base()["caas"]),
        "gpu-clusters:rke2": "{}",
    }
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(values))
    assert load(inventory(tmp_path)).section.name == "dev"


def test_text_that_is_no_json_is_a_fault_and_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="caas: is not a mapping"):
        _load(tmp_path, {"cluster-type": "caas", "caas": "{oops"})


def test_warnings_stop_nothing(tmp_path: Path) -> None:
    tenants = [{"name": "a", "gpus": 16}, {"name": "b", "gpus": 1}]
    (warning,) = _load(inventory(tmp_path), caas(tenants=tenants)).warnings
    assert "promised more GPUs" in str(warning)


@pytest.mark.parametrize("key", ["kubeconfig", "ssh-private-key"])
def test_a_secret_that_is_the_path_of_a_file_is_refused_and_not_shown(
    tmp_path: Path, key: str
) -> None:
    secrets = {"kubeconfig": KUBECONFIG, "ssh-private-key": KEY, key: "/home/hunter2/.secret"}
    with pytest.raises(ConfigError, match=f"{key}: is not the text of") as raised:
        _load(tmp_path, EXISTING, secrets)
    assert "hunter2" not in str(raised.value)


def test_secrets_that_the_lab_does_not_need_are_warned_of(tmp_path: Path) -> None:
    loaded = _load(inventory(tmp_path), base(), {"kubeconfig": KUBECONFIG})
    assert [warning.path for warning in loaded.warnings] == [("kubeconfig",)]


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
