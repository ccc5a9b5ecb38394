"""Machines on Google Cloud as components: what is declared, who may reach it, what is known when."""

from dataclasses import replace
from typing import Any

import pulumi
import pytest
import yaml

from components.gcp import GcpPool
from gpuclusters.config import gcp
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.gcp import cloud_init, firewall_rules
from stacks.hosts import declare
from tests.components.recorder import record
from tests.fixtures.made_up import host_key
from tests.unit.config.documents import google

KEY = host_key(1)
GROUP = {"name": "gpus", "role": "worker", "machines": ["gpu-1"], "machine-type": "n1-standard-8"}
HOSTS = google(groups=[GROUP])


def test_a_rule_for_the_whole_internet_is_refused() -> None:
    plan = gcp.pool(GcpHosts.model_validate(HOSTS), cluster="c", owner="o", between_nodes=())

    def program() -> None:
        GcpPool("c", plan=replace(plan, ssh_sources=["0.0.0.0/0"]))

    with pytest.raises(pulumi.RunError, match="is the whole internet"):
        record(program)


def test_what_the_command_plugin_would_do_is_refused_behind_googles_proxy() -> None:
    seen: list[Any] = []

    def program() -> None:
        hosts = GcpHosts.model_validate(HOSTS)
        seen.append(declare(hosts, {}, cluster="lab", between_nodes=()).connections["gpu-1"])

    record(program)
    with pytest.raises(pulumi.RunError, match="gpu-1 is reached through Identity-Aware Proxy"):
        seen[0].root_script("s", None, "cdi/reload-runtime.sh", (), pulumi.ResourceOptions())


def test_what_a_machine_is_told_at_its_first_boot() -> None:
    private = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n"
    text = cloud_init.user_data("ubuntu", [KEY], private_key=private, public_key=KEY)
    assert text.startswith("#cloud-config\n")
    told = yaml.safe_load(text)
    assert told["ssh_keys"] == {"ed25519_private": private, "ed25519_public": KEY}
    assert told["ssh_genkeytypes"] == []
    assert told["users"][0]["ssh_authorized_keys"] == [KEY]
    assert told["ssh_pwauth"] is False
    written = {one["path"]: one for one in told["write_files"]}
    assert "set_host_keys = false" in written["/etc/default/instance_configs.cfg"]["content"]
    assert written["/usr/local/sbin/gpu-clusters-first-boot"]["permissions"] == "0755"
    units = [command[-1] for command in told["runcmd"] if "enable" in command]
    assert units == [cloud_init.GUARD_UNIT, cloud_init.FIRST_BOOT_UNIT]
    assert all(f"/etc/systemd/system/{unit}" in written for unit in units)


def test_names_that_google_would_refuse_are_cut_and_stay_different() -> None:
    assert gcp.account_id("lab") == "lab-nodes"
    long = [gcp.account_id("a-cluster-with-a-very-long-name" + end) for end in "12"]
    assert len(set(long)) == 2
    assert all(len(one) <= 30 for one in long)
    assert gcp.owner("gpu-clusters", "Prod.EU/1") == "gpu-clusters-prod-eu-1"


@pytest.mark.parametrize("cni", ["canal", "calico", "cilium", "flannel"])
def test_nodes_of_rke2_reach_what_rke2_needs(cni: str) -> None:
    for metrics in (False, True):
        tcp, _, icmp = firewall_rules.rke2(cni, metrics=metrics)
        assert {"6443", "9345", "10250"} <= set(tcp.ports)
        assert ("9100" in tcp.ports) is metrics
        assert icmp.protocol == "icmp"
