"""Machines on Google Cloud as components: what is declared, who may reach it, what is known when."""

from dataclasses import replace
from functools import cache
from typing import Any

import pulumi
import pytest
import yaml

from components.gcp import GcpPool
from gpuclusters.config import gcp
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.gcp import cloud_init, firewall_rules
from gpuclusters.gcp.model import GcpMachineInputs
from gpuclusters.usernetes.addresses import Ports
from stacks.hosts import declare
from tests.components.recorder import Recorder, record

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
HOSTS: dict[str, Any] = {
    "source": "gcp",
    "project": "my-project",
    "zones": ["us-central1-a", "us-central1-c"],
    "authorized-keys": [KEY],
    "image": {"source": "family", "family": "ubuntu-2404-lts-amd64"},
    "network": {"source": "own", "cidr": "10.10.0.0/18", "mtu": 8896},
    "access": {"source": "iap"},
    "labels": {"team": "research"},
    "groups": [
        {
            "name": "control",
            "role": "controller",
            "machines": ["cp-1"],
            "machine-type": "n1-standard-4",
        },
        {
            "name": "gpus",
            "role": "worker",
            "machines": ["gpu-1", "gpu-2"],
            "machine-type": "n1-standard-8",
            "gpu": {"product": "v100-sxm2-16gb", "count": 1},
            "provisioning": "spot",
        },
    ],
}


def declared(seen: list[Any] | None = None, **changes: Any) -> Recorder:
    hosts = GcpHosts.model_validate(HOSTS | changes)

    def program() -> None:
        rules = firewall_rules.usernetes(Ports())
        made = declare(hosts, {}, cluster="lab", between_nodes=rules)
        if seen is not None:
            seen.append(made.connections)

    return record(program)


@cache
def _declared_once() -> Recorder:
    return declared()


@pytest.fixture
def lab() -> Recorder:
    """One run for all tests, within a test: only there is an event loop."""
    return _declared_once()


def test_what_a_cluster_on_google_cloud_is_made_of(lab: Recorder) -> None:
    assert sorted(lab.types()) == [
        "gcp:compute/firewall:Firewall",
        "gcp:compute/firewall:Firewall",
        "gcp:compute/network:Network",
        "gcp:compute/router:Router",
        "gcp:compute/routerNat:RouterNat",
        "gcp:compute/subnetwork:Subnetwork",
        "gcp:projects/iAMMember:IAMMember",
        "gcp:projects/iAMMember:IAMMember",
        "gcp:serviceaccount/account:Account",
        "gpu-clusters:gcp:GcpPool",
        *["gpu-clusters:gcp:GpuMachine"] * 3,
        *["gpu-clusters:gpu:FirstLogin"] * 3,
        *["gpu-clusters:gpu:GcpMachine"] * 3,
        "gpu-clusters:gpu:GcpQuota",
        *["gpu-clusters:gpu:SshHostKey"] * 3,
        "pulumi:providers:gcp",
    ]


def test_only_iap_may_open_ssh_and_nodes_reach_each_other_on_the_needed_ports(
    lab: Recorder,
) -> None:
    rules = lab.of(":Firewall")
    assert rules["lab-ssh"]["sourceRanges"] == ["35.235.240.0/20"]
    assert rules["lab-ssh"]["allows"] == [{"protocol": "tcp", "ports": ["22"]}]
    assert rules["lab-nodes"]["allows"] == [
        {"protocol": "tcp", "ports": ["6443", "10250"]},
        {"protocol": "udp", "ports": ["8472"]},
        {"protocol": "icmp"},
    ]
    for rule in rules.values():
        assert rule["targetTags"] == ["lab"]
        assert rule["direction"] == "INGRESS"
    assert rules["lab-nodes"]["sourceTags"] == ["lab"]
    assert "sourceRanges" not in rules["lab-nodes"]
    assert "0.0.0.0/0" not in str(lab.seen)


def test_a_rule_for_the_whole_internet_is_refused() -> None:
    hosts = GcpHosts.model_validate(HOSTS)
    plan = gcp.pool(hosts, cluster="c", owner="o", between_nodes=())

    def program() -> None:
        GcpPool("c", plan=replace(plan, ssh_sources=["0.0.0.0/0"]))

    with pytest.raises(pulumi.RunError, match="is the whole internet"):
        record(program)


def test_the_network_has_a_way_out_and_none_in(lab: Recorder) -> None:
    (network,) = lab.of(":Network").values()
    assert (network["autoCreateSubnetworks"], network["mtu"]) == (False, 8896)
    (subnet,) = lab.of(":Subnetwork").values()
    assert (subnet["ipCidrRange"], subnet["region"]) == ("10.10.0.0/18", "us-central1")
    (nat,) = lab.of(":RouterNat").values()
    assert nat["natIpAllocateOption"] == "AUTO_ONLY"


def test_a_machine_is_asked_for_with_all_that_it_needs(lab: Recorder) -> None:
    machine = lab.of(":GcpMachine")["gpu-1-machine"]
    assert machine["name"] == "lab-gpu-1"
    assert machine["accelerator"] == {"type": "nvidia-tesla-v100", "count": 1}
    assert machine["provisioning"] == "spot"
    assert machine["zones"] == ["us-central1-a", "us-central1-c"]
    assert machine["owner"] == "gpu-clusters-test"
    assert machine["public_address"] is False
    assert machine["subnetwork"] == "projects/my-project/regions/us-central1/subnetworks/lab"
    assert machine["labels"] == {
        "team": "research",
        "gpu-clusters-cluster": "lab",
        "gpu-clusters-role": "worker",
    }
    known = {k: v for k, v in machine.items() if k in GcpMachineInputs.model_fields}
    assert GcpMachineInputs.model_validate(known | {"service_account": "a@b"}).gpus == 1
    assert "accelerator" not in lab.of(":GcpMachine")["cp-1-machine"]


def test_the_quota_is_read_for_all_machines_together(lab: Recorder) -> None:
    (quota,) = lab.of(":GcpQuota").values()
    assert quota["machines"] == {
        "lab-cp-1": {"SSD_TOTAL_GB": 256, "CPUS": 4},
        "lab-gpu-1": {
            "SSD_TOTAL_GB": 256,
            "PREEMPTIBLE_NVIDIA_V100_GPUS": 1,
            "GPUS_ALL_REGIONS": 1,
        },
        "lab-gpu-2": {
            "SSD_TOTAL_GB": 256,
            "PREEMPTIBLE_NVIDIA_V100_GPUS": 1,
            "GPUS_ALL_REGIONS": 1,
        },
    }


def test_the_account_may_write_logs_and_measurements_and_nothing_else(lab: Recorder) -> None:
    roles = {grant["role"] for grant in lab.of(":IAMMember").values()}
    assert roles == {"roles/logging.logWriter", "roles/monitoring.metricWriter"}
    assert lab.of(":GcpMachine")["cp-1-machine"]["scopes"] == ["logging.write", "monitoring.write"]


def test_a_network_of_somebody_else_is_used_as_it_is() -> None:
    network = {
        "source": "existing",
        "network": "shared",
        "subnetwork": "gpus",
        "project": "net-project",
        "cidr": "10.20.0.0/20",
    }
    recorder = declared(network=network)
    assert not recorder.of(":Network")
    assert not recorder.of(":RouterNat")
    rule = recorder.of(":Firewall")["lab-ssh"]
    assert rule["project"] == "net-project"
    assert rule["network"] == "projects/net-project/global/networks/shared"
    machine = recorder.of(":GcpMachine")["cp-1-machine"]
    assert machine["subnetwork"] == "projects/net-project/regions/us-central1/subnetworks/gpus"


@pytest.mark.parametrize(
    ("access", "tunnel"),
    [
        ({"source": "iap"}, True),
        ({"source": "ranges", "ranges": ["203.0.113.0/24"], "public-addresses": True}, False),
    ],
)
def test_a_machine_is_reached_as_the_configuration_says(
    access: dict[str, Any], tunnel: bool
) -> None:
    seen: list[Any] = []
    recorder = declared(seen, access=access)
    connection = seen[0]["gpu-1"]
    assert ("iap" in connection.as_input()) is tunnel
    assert connection.host == "gpu-1"
    assert recorder.of(":GcpMachine")["gpu-1-machine"]["public_address"] is not tunnel
    if tunnel:
        with pytest.raises(pulumi.RunError, match="gpu-1 is reached through Identity-Aware Proxy"):
            connection.root_script("s", None, "cdi/reload-runtime.sh", (), pulumi.ResourceOptions())


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
    tcp, _, icmp = firewall_rules.rke2(cni, metrics=False)
    assert {"6443", "9345", "10250"} <= set(tcp.ports)
    assert "9100" not in tcp.ports
    assert "9100" in firewall_rules.rke2(cni, metrics=True)[0].ports
    assert icmp.protocol == "icmp"
