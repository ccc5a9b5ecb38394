"""Units that packages of a simulated host bring along, or that every machine has."""

from __future__ import annotations

from lab.hosts.standins.fabric import UNIT as FABRIC_MANAGER

DESCRIPTIONS = {
    FABRIC_MANAGER: "NVIDIA fabric manager service",
    "containerd.service": "containerd container runtime",
    "docker.service": "Docker Application Container Engine",
    "docker.socket": "Docker Socket for the API",
    "kubelet.service": "kubelet: The Kubernetes Node Agent",
    "libvirtd.service": "libvirt legacy monolithic daemon",
    "ssh.service": "OpenBSD Secure Shell server",
}
PROGRAMS = {
    FABRIC_MANAGER: "/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg",
    "containerd.service": "/usr/bin/containerd",
    "docker.service": "/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock",
    "docker.socket": "",
    "kubelet.service": "/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml",
    "libvirtd.service": "/usr/sbin/libvirtd",
    "ssh.service": "/usr/sbin/sshd -D",
}
PACKAGES = {
    FABRIC_MANAGER: (
        "nvidia-fabricmanager",
        "nvidia-fabricmanager-580",
        "nvidia-fabricmanager-595",
    ),
    "containerd.service": ("containerd.io", "containerd"),
    "docker.service": ("docker-ce", "docker.io"),
    "docker.socket": ("docker-ce", "docker.io"),
    "kubelet.service": ("kubelet",),
    "libvirtd.service": ("libvirt-daemon-system", "libvirt-daemon-kvm"),
    "ssh.service": (),
}
"""Units that packages bring along; without packages: part of every machine."""
