"""What a `caas` configuration means: for kubelets, containerds, boards and the programs in the cluster."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml

from caas.settings import Settings
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.plan import boot_profile, plan, table
from gpuclusters.config.programs import settings_file
from gpuclusters.fabric.table import BOARDS, MapSource
from tests.unit.config.documents import accepted, caas

MACHINE = {"address": "192.0.2.1", "port": 22, "user": "root", "host_key": "k", "bmc": None}


@pytest.mark.parametrize(
    ("containerd", "version", "plugin", "cdi"),
    [
        ({}, 3, "io.containerd.cri.v1.runtime", None),
        ({"version": "1.7.27"}, 2, "io.containerd.grpc.v1.cri", True),
        ({"config-version": "2"}, 2, "io.containerd.grpc.v1.cri", None),
    ],
)
def test_a_containerd_is_told_to_read_cdi_specs_in_the_words_of_its_version(
    containerd: dict[str, str], version: int, plugin: str, *, cdi: bool | None
) -> None:
    config = accepted(caas(kubernetes={"containerd": containerd})).section
    document = tomllib.loads(config.kubernetes.containerd.drop_in)
    assert document["version"] == version
    assert document["plugins"][plugin].get("enable_cdi") is cdi


@pytest.mark.parametrize(
    ("version", "gates"), [("1.33.4", {"KubeletPodResourcesGet": True}), ("1.34.0", None)]
)
def test_kubelets_before_1_34_get_the_gate_by_which_kata_learns_a_pods_gpus(
    version: str, gates: dict[str, bool] | None
) -> None:
    config = accepted(caas(kubernetes={"version": version})).section
    assert yaml.safe_load(plan(config).kubelet_drop_in).get("featureGates") == gates


def test_a_partition_table_that_is_given_is_planned_with_and_modules_are_believed() -> None:
    # The shape is known of every board; these numbers are made up, as any are that nobody has read.
    cuts = {20: [1, 2, 3, 4, 5, 6, 7, 8], 21: [1, 2, 3, 4], 22: [5, 6, 7, 8]}
    node = {
        "name": "dgx-01",
        "gpus": {str(n): f"0000:{n:02x}:00.0" for n in range(1, 9)},
        "switches": [f"0000:c{n}:00.0" for n in range(6)],
    }
    config = accepted(
        caas(
            platform="hgx-a100",
            partition_table=[{"id": number, "gpus": gpus} for number, gpus in cuts.items()],
            partition_layout=[4, 4],
            nodes=[node],
            tenants=[],
        )
    ).section
    assert table(config).sizes == (4, 8)
    assert [p.id for p in plan(config).nodes[0].partitions] == [21, 22]
    assert BOARDS[plan(config).preset.baseboard].module_map is MapSource.STATED


def told(config: CaasConfig, **given: Any) -> Settings:
    """What the programs read."""
    text = settings_file(
        config,
        plan(config),
        **{
            "hosts": {"hgx-01": MACHINE},
            "issuer": "https://id.example.com",
            "golden_firmware": {},
            **given,
        },
    )
    return Settings.model_validate(yaml.safe_load(text))


def section(**changes: Any) -> CaasConfig:
    one = {"nodes": [{"name": "hgx-01", "kernel": "6.17.0"}], "partition_layout": [8]}
    config: CaasConfig = accepted(caas(**{**one, **changes})).section
    return config


@pytest.mark.parametrize(
    ("cuts", "leased"),
    [(None, (1, 5, 6)), ({"hgx-01": None}, (1, 5, 6)), ({"hgx-01": [3, 2, 4]}, (2, 3, 4))],
)
def test_programs_lease_the_partitions_into_which_a_board_was_really_cut(
    cuts: dict[str, list[int] | None] | None, leased: tuple[int, ...]
) -> None:
    (host,) = told(section(partition_layout=[4, 2, 2]), cuts=cuts).hosts
    assert host.partitions == leased


def test_controllers_log_in_as_themselves_where_they_have_an_account() -> None:
    config = section()
    own = config.leases.model_copy(update={"user": "gpu-controllers"})
    with_account = config.model_copy(update={"leases": own})
    users = [told(one).hosts[0].user for one in (config, with_account)]
    assert users == [MACHINE["user"], "gpu-controllers"]


def test_keys_are_fetched_where_pods_reach_the_issuer() -> None:
    keys = {"url": "https://10.96.0.2:4001/keys", "ca_certificate": "PEM"}
    api = told(section(), issuer="http://127.0.0.1:4000", issuer_keys=keys).api
    assert (api.issuer, api.jwks_url, api.ca_certificate) == (
        "http://127.0.0.1:4000",
        *keys.values(),
    )
    alone = told(section(api={"jwks-url": "https://id.example.com/keys"})).api
    assert (alone.jwks_url, alone.ca_certificate) == ("https://id.example.com/keys", None)


def test_a_pod_may_take_as_long_as_its_boot_profile_says_and_longer_with_more_memory() -> None:
    deadlines = []
    for memory in (64, 1500):
        largest = {"cpu": 64, "memory-gib": memory}
        config = section(tenants=[{"name": "acme", "gpus": 8, "max-container": largest}])
        profile, settings = boot_profile(config), told(config)
        assert settings.start_deadline_seconds == profile.pod_start_deadline
        assert settings.start_deadline_seconds > profile.kubelet_request_timeout
        deadlines.append(settings.start_deadline_seconds)
    assert deadlines[0] == Settings.model_fields["start_deadline_seconds"].default
    assert deadlines[1] > deadlines[0]
