"""What a host must be before RKE2 comes to it for the first time. Pure.

Sources: RKE2's requirements (cgroups, AppArmor, RHEL 10, ports) and known issues; etcd's hardware guide.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.domain.rke2 import API_PORT, SUPERVISOR_PORT, Role
from gpuclusters.domain.rke2_node import LiveHost

LEAST_FREE_MIB = 15 * 1024
"""The images of a release unpacked take some 8 GiB; the kubelet evicts pods from 85 % on."""
LEAST_INOTIFY_INSTANCES = 8192
"""What `rke2_config.INOTIFY` sets."""
KUBELET_PORT = 10250
_ETCD_PORTS = (2379, 2380)
_OTHER_CLUSTERS = ("k3s.service", "k3s-agent.service", "kubelet.service")

Finding = tuple[str, str]
"""What is wrong, and what to do."""


def findings(role: Role, live: LiveHost) -> Iterator[Finding]:
    """Everything at once; only of a host on which nothing of ours has begun."""
    others = [unit for unit in live.running if unit in _OTHER_CLUSTERS]
    if others:
        yield (
            f"{', '.join(others)} runs there: the host is a node of another cluster",
            "drain and reset it first (`k3s-uninstall.sh`, `kubeadm reset` and `systemctl disable --now "
            "kubelet`)",
        )
    wanted = [KUBELET_PORT]
    if role is Role.SERVER:
        wanted += [API_PORT, SUPERVISOR_PORT, *_ETCD_PORTS]
    taken = sorted(live.ports & set(wanted))
    if taken and not others:
        yield (
            f"something listens on port {', '.join(map(str, taken))} already, which RKE2 needs",
            "find it with `ss -ltnp` and stop it",
        )
    if "docker.service" in live.running:
        yield (
            "docker runs there, which lets no forwarded packet of a pod through (its FORWARD policy is DROP)",
            "`systemctl disable --now docker.service docker.socket`; RKE2 brings its own containerd",
        )
    yield from _system(live)


def _system(live: LiveHost) -> Iterator[Finding]:
    if live.cgroup == "v1":
        yield (
            "it runs cgroup v1, which Kubernetes does not support any more",
            "boot with `systemd.unified_cgroup_hierarchy=1`",
        )
    if live.free_mib < LEAST_FREE_MIB:
        yield (
            f"{live.free_mib} MiB are free in /var/lib/rancher and {LEAST_FREE_MIB} are needed for images",
            "free space there, or mount a larger disk",
        )
    if not live.apparmor_parser:
        yield (
            "its kernel has AppArmor and apparmor_parser is not installed, without which no container starts",
            "install the package apparmor (SLES: apparmor-parser)",
        )
    if not live.kernel_modules_extra:
        yield (
            "the kernel modules of iptables are not installed",
            "`dnf install kernel-modules-extra`, and reboot if a newer kernel came with it",
        )
