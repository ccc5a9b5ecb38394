"""What the programs in the cluster are told follows from the configuration."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from caas.settings import Settings
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.plan import boot_profile, plan
from gpuclusters.config.programs import settings_file

SECTION: dict[str, Any] = {
    "name": "test",
    "platform": "supermicro-hgx-h100",
    "hosts": {"source": "lab"},
    "kubernetes": {"source": "lab"},
    "nodes": [{"name": "hgx-01", "kernel": "6.17.0"}],
    "partition-layout": [8],
    "tenants": [{"name": "acme", "gpus": 8}],
}
MACHINE = {"address": "192.0.2.1", "port": 22, "user": "root", "host_key": "k", "bmc": None}


def written(**changes: Any) -> tuple[CaasConfig, Settings]:
    config = CaasConfig.model_validate({**SECTION, **changes})
    text = settings_file(
        config,
        plan(config),
        hosts={"hgx-01": MACHINE},
        issuer="https://id.example.com",
        golden_firmware={},
    )
    return config, Settings.model_validate(yaml.safe_load(text))


def test_programs_lease_the_partitions_into_which_a_board_was_really_cut() -> None:
    config = CaasConfig.model_validate({**SECTION, "partition-layout": [4, 2, 2]})
    cluster = plan(config)
    (node,) = cluster.nodes
    assert (node.layout, [p.id for p in node.partitions]) == ((4, 2, 2), [1, 5, 6])
    for cuts, leased in (
        (None, (1, 5, 6)),
        ({"hgx-01": None}, (1, 5, 6)),
        ({"hgx-01": [3, 2, 4]}, (2, 3, 4)),
    ):
        text = settings_file(
            config,
            cluster,
            hosts={"hgx-01": MACHINE},
            issuer="https://id.example.com",
            golden_firmware={},
            cuts=cuts,
        )
        (host,) = Settings.model_validate(yaml.safe_load(text)).hosts
        assert host.partitions == leased


def test_controllers_log_in_as_themselves_where_they_have_an_account() -> None:
    for leases, user in (({}, MACHINE["user"]), ({"user": "gpu-controllers"}, "gpu-controllers")):
        _, told = written(leases=leases)
        assert [host.user for host in told.hosts] == [user]


def test_keys_are_fetched_where_pods_reach_the_issuer() -> None:
    config = CaasConfig.model_validate(SECTION)
    given: dict[str, Any] = {
        "hosts": {"hgx-01": MACHINE},
        "issuer": "http://127.0.0.1:4000",
        "golden_firmware": {},
    }
    keys = {"url": "https://10.96.0.2:4001/keys", "ca_certificate": "PEM"}
    text = settings_file(config, plan(config), **given, issuer_keys=keys)
    api = Settings.model_validate(yaml.safe_load(text)).api
    assert (api.issuer, api.jwks_url, api.ca_certificate) == (
        "http://127.0.0.1:4000",
        "https://10.96.0.2:4001/keys",
        "PEM",
    )
    _, alone = written(api={"jwks-url": "https://id.example.com/keys"})
    assert (alone.api.jwks_url, alone.api.ca_certificate) == ("https://id.example.com/keys", None)


@pytest.mark.parametrize("memory_gib", [64, 1500])
def test_a_pod_may_take_as_long_as_its_boot_profile_says(memory_gib: int) -> None:
    largest = {"cpu": 64, "memory-gib": memory_gib}
    config, settings = written(tenants=[{"name": "acme", "gpus": 8, "max-container": largest}])
    profile = boot_profile(config)
    assert settings.start_deadline_seconds == profile.pod_start_deadline
    assert settings.start_deadline_seconds > profile.kubelet_request_timeout


def test_more_memory_gives_a_pod_more_time() -> None:
    deadlines = [
        written(tenants=[{"name": "a", "gpus": 8, "max-container": {"cpu": 1, "memory-gib": m}}])[
            1
        ].start_deadline_seconds
        for m in (64, 1500)
    ]
    assert deadlines[0] == Settings.model_fields["start_deadline_seconds"].default
    assert deadlines[1] > deadlines[0]
