"""What a `caas` configuration means to the programs in the cluster."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from caas.settings import Settings
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.plan import boot_profile, plan
from gpuclusters.config.programs import settings_file
from tests.unit.config.documents import accepted, caas

MACHINE = {"address": "192.0.2.1", "port": 22, "user": "root", "host_key": "k", "bmc": None}


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
