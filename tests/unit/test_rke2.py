"""RKE2 without a host: what follows what, what is told, why a host does not join, what speaks against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclusters.domain import (
    rke2,
    rke2_cilium,
    rke2_config,
    rke2_kubeconfig,
    rke2_matrix,
    rke2_refusals,
    rke2_state,
)
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.rke2 import Role, parse_version
from gpuclusters.domain.rke2_cilium import Cilium, Encryption
from gpuclusters.domain.rke2_node import ClusterNode, LiveHost, Rke2NodeInputs, taint_changes
from gpuclusters.domain.rke2_plan import join_order, rounds
from lab.hosts import rke2_release

SETTINGS = rke2_config.Settings(registration_address="10.20.0.100")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


@pytest.mark.parametrize(
    "text", ["stable", "v1.35", "1.35.7+rke2r1", "v1.35.7", "v1.35.7+k3s1", ""]
)
def test_only_a_whole_release_is_a_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"v1\.35\.7\+rke2r1"):
        parse_version(text)


@pytest.mark.parametrize(
    ("installed", "wanted", "problem"),
    [
        ("v1.35.7+rke2r1", "v1.35.7+rke2r1", None),
        ("v1.35.7+rke2r1", "v1.35.7+rke2r2", None),
        ("v1.35.7+rke2r1", "v1.36.0+rke2r1", None),
        ("v1.35.7+rke2r1", "v1.37.0+rke2r1", "skips a minor"),
        ("v1.35.7+rke2r1", "v1.35.6+rke2r3", "no downgrade"),
        ("v1.35.7+rke2r1", "v1.34.9+rke2r1", "no downgrade"),
    ],
)
def test_upgrades_go_by_one_minor_and_never_back(
    installed: str, wanted: str, problem: str | None
) -> None:
    found = rke2.step_problem(parse_version(installed), parse_version(wanted))
    assert (problem in found) if problem and found else found is problem


@pytest.mark.parametrize(
    ("server", "agent", "allowed"),
    [
        ("35", "35", True),
        ("35", "36", False),
        ("36", "35", True),
        ("36", "33", True),
        ("36", "32", False),
    ],
)
def test_an_agent_is_never_newer_than_its_servers(server: str, agent: str, allowed: bool) -> None:
    one, other = (parse_version(f"v1.{minor}.0+rke2r1") for minor in (server, agent))
    assert (rke2.skew_problem(one, other) is None) is allowed


@pytest.mark.parametrize(
    ("version", "imports"),
    [
        # go.mod of RKE2's tags: K3s of 2026-02-27 and older has not the change 13680, that of 2026-03-16 has;
        # seen in 1.36 (confidential-dot-ai/c8s, pull request 622).
        ("v1.31.14+rke2r1", "no"),
        ("v1.32.13+rke2r1", "no"),
        ("v1.32.13+rke2r2", "likely"),
        ("v1.33.9+rke2r1", "no"),
        ("v1.33.10+rke2r1", "likely"),
        ("v1.34.5+rke2r1", "no"),
        ("v1.34.6+rke2r1", "likely"),
        ("v1.35.2+rke2r1", "no"),
        ("v1.35.3+rke2r1", "likely"),
        ("v1.36.0+rke2r1", "confirmed"),
        ("v1.37.1+rke2r1", "confirmed"),
        ("v1.99.0+rke2r1", "likely"),
    ],
)
def test_which_releases_import_drop_ins_of_containerd(version: str, imports: str) -> None:
    assert rke2_matrix.drop_ins(parse_version(version)) == imports
    assert rke2_release.imports_drop_ins(version) is (imports != "no")


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([1, 3, 5]), st.integers(0, 60), st.integers(1, 50))
def test_hosts_join_servers_first_and_never_more_at_once_than_allowed(
    servers: int, agents: int, at_once: int
) -> None:
    names = [f"s{n}" for n in range(servers)], [f"a{n}" for n in range(agents)]
    order = join_order(*names, at_once)
    assert [join.first for join in order] == [True] + [False] * (servers + agents - 1)
    place = {join.host: n for n, join in enumerate(order)}
    assert all(join.after is None or place[join.after] < place[join.host] for join in order)
    # Each server waits for the one before; each agent for the last server, directly or not.
    assert [join.after for join in order[:servers]] == [None, *names[0][:-1]]
    waiting = [join for join in order if join.role is Role.AGENT and join.after == names[0][-1]]
    assert len(waiting) == min(at_once, agents)
    assert rounds(order) == servers + -(-agents // at_once)


def test_one_more_agent_makes_no_other_wait_for_another() -> None:
    before = join_order(["s"], [f"a{n}" for n in range(7)], 3)
    after = join_order(["s"], [f"a{n}" for n in range(8)], 3)
    assert after[:-1] == before


def test_what_a_server_is_told() -> None:
    first = rke2_config.config(SETTINGS, Role.SERVER, first=True, node_name="cp-1")
    second = rke2_config.config(SETTINGS, Role.SERVER, first=False, node_name="cp-2")
    assert first == {
        "node-name": "cp-1",
        "tls-san": ["10.20.0.100"],
        "cni": "cilium",
        "disable-kube-proxy": True,
        "cluster-cidr": "10.42.0.0/16",
        "service-cidr": "10.43.0.0/16",
        "cluster-dns": "10.43.0.10",
        "cluster-domain": "cluster.local",
        "disable": [],
        "kube-apiserver-arg": ["enable-admission-plugins=NodeRestriction,DenyServiceExternalIPs"],
        "write-kubeconfig-mode": "0600",
        "etcd-snapshot-schedule-cron": "0 */12 * * *",
        "etcd-snapshot-retention": 5,
        "node-taint": ["CriticalAddonsOnly=true:NoExecute"],
    }
    assert second == {**first, "node-name": "cp-2", "server": "https://10.20.0.100:9345"}
    allowed = replace(SETTINGS, deny_external_ips=False)
    told = rke2_config.config(allowed, Role.SERVER, first=True, node_name="cp-1")
    assert told["kube-apiserver-arg"] == ["enable-admission-plugins=NodeRestriction"]


def test_an_agent_is_told_nothing_of_the_control_plane() -> None:
    told = rke2_config.config(
        replace(SETTINGS, cis=True, selinux=True),
        Role.AGENT,
        first=False,
        node_name="hgx-01",
        labels={"b": "2", "a": "1"},
    )
    assert told == {
        "node-name": "hgx-01",
        "server": "https://10.20.0.100:9345",
        "profile": "cis",
        "selinux": True,
        "node-label": ["a=1", "b=2"],
    }
    assert rke2_cilium.PATH not in rke2_config.files(SETTINGS, Role.AGENT)


def test_cilium_leaves_sockets_of_virtual_machines_alone_and_opens_nothing() -> None:
    body = yaml.safe_load(
        rke2_cilium.helm_chart_config(Cilium(encryption=Encryption.WIREGUARD, mtu=9000))
    )
    assert (body["kind"], body["metadata"]["name"]) == ("HelmChartConfig", "rke2-cilium")
    values = yaml.safe_load(body["spec"]["valuesContent"])
    assert values["kubeProxyReplacement"] is True
    assert values["socketLB"] == {"hostNamespaceOnly": True}
    assert (values["k8sServiceHost"], values["k8sServicePort"]) == ("localhost", "6443")
    assert values["hubble"]["enabled"] is False
    # Cilium 1.19, upgrade guide: the option is removed; the chart takes it and does nothing.
    assert "externalIPs" not in values
    assert values["operator"] == {"setNodeNetworkStatus": True}
    # The chart has no switch of the DNS proxy alone, and takes any key that it does not know.
    assert values["l7Proxy"] is True
    assert rke2_cilium.values(Cilium(dns_proxy=False))["l7Proxy"] is False
    assert values["encryption"] == {"enabled": True, "type": "wireguard"}
    assert values["MTU"] == 9000
    assert "k8sServiceHost" not in rke2_cilium.values(Cilium(kube_proxy_replacement=False))


def test_no_token_is_in_what_may_be_shown() -> None:
    inputs = node()
    shown = repr(inputs.contents()) + repr(rke2_config.files(SETTINGS, Role.SERVER))
    assert inputs.token not in shown
    assert inputs.token in inputs.tokens()


def test_the_kubeconfig_leads_to_the_servers_address() -> None:
    body = {
        "clusters": [{"name": "default", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "users": [{"name": "default", "user": {"client-key-data": "x"}}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "current-context": "default",
    }
    made = yaml.safe_load(
        rke2_kubeconfig.readdressed(yaml.safe_dump(body), "api.example.com", name="c")
    )
    assert made["clusters"] == [
        {"name": "c", "cluster": {"server": "https://api.example.com:6443"}}
    ]
    assert made["contexts"] == [{"name": "c", "context": {"cluster": "c", "user": "c"}}]
    assert "https://[fd00::1]:6443" in rke2_kubeconfig.readdressed(
        yaml.safe_dump(body), "fd00::1", name="c"
    )
    with pytest.raises(ValueError, match="not a kubeconfig"):
        rke2_kubeconfig.readdressed("{}", "x", name="c")


def node(**changes: Any) -> Rke2NodeInputs:
    connection = {"host": "hgx-01", "address": "10.20.0.11", "host_key": KEY}
    server = {"host": "cp-1", "address": "10.20.0.1", "host_key": KEY}
    return Rke2NodeInputs.model_validate(
        {
            "connection": connection,
            "cluster": "c",
            "node_name": "hgx-01",
            "role": "agent",
            "control": [server],
            "registration_address": "10.20.0.100",
            "version": "v1.35.7+rke2r1",
            "artifacts": {"location": "https://x", "checksum": "a" * 64},
            "config": {"node-name": "hgx-01"},
            "token": "a-token-of-sixteen",
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token": "short"}, "at least 16 characters"),
        ({"token": "K10abcdef0123456789::server:x"}, "without K10"),
        ({"version": "stable"}, "a release of RKE2"),
        ({"first": True}, "only a server makes a cluster"),
        ({"control": []}, "name the servers"),
        ({"control": [{"host": "hgx-01", "address": "x", "host_key": KEY}]}, "vouch for itself"),
        ({"node_name": "HGX_01"}, "a name that Kubernetes accepts"),
        ({"files": {"relative": "x"}}, "absolute"),
    ],
)
def test_inputs_that_cannot_be_right(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        node(**changes)


class Server:
    """A control plane that answers as told."""

    place = "cp-1 (10.20.0.1:22)"

    def __init__(
        self, time: int = 0, nodes: Mapping[str, ClusterNode] | None = None, *, up: bool = True
    ) -> None:
        self._time, self._nodes, self._up = time, nodes or {}, up

    def clock(self) -> int:
        return self._time

    def is_installed(self) -> bool:
        return True

    def is_ready(self) -> bool:
        return self._up

    def node(self, name: str) -> ClusterNode | None:
        return self._nodes.get(name)

    def servers(self) -> Mapping[str, ClusterNode]:
        return self._nodes

    def drain(self, name: str, reason: str, timeout_seconds: int) -> None: ...
    def uncordon(self, name: str) -> None: ...
    def label(self, name: str, labels: Mapping[str, str | None]) -> None: ...
    def taint(self, name: str, changes: Sequence[str]) -> None: ...
    def delete(self, name: str) -> None: ...


def ready(version: str = "v1.35.7+rke2r1") -> ClusterNode:
    return ClusterNode(ready=True, version=version, labels={}, unschedulable=False, drained_for="")


@pytest.mark.parametrize(
    ("inputs", "live", "known", "server", "said"),
    [
        (node(), LiveHost(default_route=False), None, Server(), ["no default route"]),
        (node(), LiveHost(clock=100), None, Server(time=200), ["100 s apart", "timedatectl"]),
        (
            node(),
            LiveHost(),
            ready(),
            Server(),
            ["has a node hgx-01 already", "kubectl delete node"],
        ),
        (node(), LiveHost(version="v1.35.7+rke2r1", method="tar"), None, Server(), ["adopt"]),
        (
            node(),
            LiveHost(version="v1.35.7+rke2r1", method="rpm"),
            None,
            Server(),
            ["RPM packages"],
        ),
        (node(), LiveHost(owner="other/hgx-01"), None, Server(), ["belongs to other/hgx-01"]),
        (node(), LiveHost(active={Role.SERVER: "active"}), None, Server(), ["runs as server"]),
        (node(selinux=True), LiveHost(selinux="Disabled"), None, Server(), ["SELinux is off"]),
        (node(), LiveHost(selinux="Enforcing"), None, Server(), ["rke2-selinux"]),
        (node(), LiveHost(architecture="aarch64"), None, Server(), ["x86_64"]),
        (node(), LiveHost(running=("kubelet.service",)), None, Server(), ["kubeadm reset"]),
        (
            node(),
            LiveHost(running=("docker.service",)),
            None,
            Server(),
            ["its FORWARD policy is DROP"],
        ),
        (node(), LiveHost(ports=frozenset({22, 10250})), None, Server(), ["port 10250 already"]),
        (
            node(role="server"),
            LiveHost(ports=frozenset({6443, 2379})),
            None,
            Server(),
            ["port 2379, 6443 already"],
        ),
        (node(), LiveHost(cgroup="v1"), None, Server(), ["unified_cgroup_hierarchy"]),
        (node(), LiveHost(free_mib=900), None, Server(), ["900 MiB are free"]),
        (node(), LiveHost(apparmor_parser=False), None, Server(), ["apparmor_parser"]),
        (node(), LiveHost(kernel_modules_extra=False), None, Server(), ["kernel-modules-extra"]),
        (
            node(version="v1.36.3+rke2r1"),
            LiveHost(),
            None,
            Server(nodes={"cp-1": ready()}),
            ["cp-1", "servers are upgraded first"],
        ),
        (
            node(),
            LiveHost(stubs=("/x/config-v3.toml.tmpl",)),
            None,
            Server(),
            ["/x/config-v3.toml.tmpl takes the place", '{{ template "base" . }}'],
        ),
        (
            node(),
            LiveHost(firewalld=True, nm_cloud_setup=True),
            None,
            Server(),
            ["firewalld", "nm-cloud-setup"],
        ),
    ],
)
def test_what_speaks_against_a_host_is_said_before_it_is_touched(
    inputs: Rke2NodeInputs,
    live: LiveHost,
    known: ClusterNode | None,
    server: Server,
    said: Sequence[str],
) -> None:
    with pytest.raises(RefusalError) as refused:
        rke2_refusals.before_joining(inputs, live, known, server, [])
    for words in said:
        assert words in str(refused.value)


def test_a_second_cluster_with_the_same_token_is_not_made() -> None:
    first = node(role="server", first=True)
    with pytest.raises(RefusalError, match="the cluster lives on cp-1"):
        rke2_refusals.before_joining(first, LiveHost(), None, Server(up=False), [Server()])
    # The other servers are not there yet, or are down with the whole cluster.
    rke2_refusals.before_joining(first, LiveHost(), None, Server(up=False), [Server(up=False)])


def test_a_host_that_is_right_is_not_refused() -> None:
    rke2_refusals.before_joining(node(), LiveHost(architecture="x86_64"), None, Server(), [])
    # What RKE2 itself brings is no obstacle to going on with it.
    ours = LiveHost(owner="c/hgx-01", ports=frozenset({10250}), free_mib=900)
    rke2_refusals.before_joining(node(), ours, None, Server(), [])
    taken_over = LiveHost(version="v1.35.7+rke2r1", method="tar", ports=frozenset({10250}))
    rke2_refusals.before_joining(node(adopt=True), taken_over, None, Server(), [])
    # One of ours that was interrupted while its node was already there.
    rke2_refusals.before_joining(node(), LiveHost(owner="c/hgx-01"), ready(), Server(), [])


@pytest.mark.parametrize(
    ("expires", "said"),
    [
        ("2026-12-31T00:00:00Z", "end on 2026-12-31, in 38 days"),
        ("2026-11-01T00:00:00Z", "ended on 2026-11-01"),
        ("2027-11-01T00:00:00Z", None),
        ("", None),
    ],
)
def test_certificates_that_end_soon_are_warned_of(expires: str, said: str | None) -> None:
    live = LiveHost(clock=1795392000, expires=expires)  # 2026-11-23
    warning = rke2_state.certificate_warning(node(), live)
    assert (said in warning) if said and warning else warning is said


@pytest.mark.parametrize(
    ("wanted", "before", "there", "told"),
    [
        (["a=1:NoSchedule"], [], [], ("a=1:NoSchedule",)),
        (["a=1:NoSchedule"], ["a=1:NoSchedule"], ["a=1:NoSchedule"], ()),
        (["a:NoSchedule"], [], ["a=:NoSchedule"], ()),
        (["a=2:NoSchedule"], ["a=1:NoSchedule"], ["a=1:NoSchedule"], ("a=2:NoSchedule",)),
        ([], ["a=1:NoSchedule"], ["a=1:NoSchedule", "theirs=:NoExecute"], ("a:NoSchedule-",)),
        ([], ["a=1:NoSchedule"], [], ()),
        (
            ["a=1:NoExecute"],
            ["a=1:NoSchedule"],
            ["a=1:NoSchedule"],
            ("a=1:NoExecute", "a:NoSchedule-"),
        ),
        (["lost=:NoSchedule"], ["lost:NoSchedule"], [], ("lost=:NoSchedule",)),
    ],
)
def test_a_node_keeps_the_taints_of_others_and_has_ours(
    wanted: list[str], before: list[str], there: list[str], told: tuple[str, ...]
) -> None:
    assert taint_changes(wanted, before, there) == told
