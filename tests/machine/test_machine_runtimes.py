"""A real containerd and a real kubelet, as units of a real systemd, read the drop-ins of a GPU node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuclusters.core.errors import AdapterError
from gpuclusters.host import drop_ins
from gpuclusters.host.resource import HostFileProvider
from gpuclusters.host.script import run_script
from lab.tools import ensure
from tests.fixtures.waiting import eventually
from tests.machine.conftest import RealMachine
from tests.providers.provider_process import Made, ProviderProcess

UNITS = ("containerd.service", "kubelet.service")
TEXTS = {
    drop_ins.CONTAINERD_DROP_IN: drop_ins.containerd(
        schema=drop_ins.ContainerdSchema.V3,
        enable_cdi=False,
        image_pull_progress_timeout_seconds=1234,
    ).replace('"/var/run/cdi"', '"/var/run/cdi", "/run/lab-cdi"'),
    drop_ins.KUBELET_DROP_IN: drop_ins.kubelet(
        runtime_request_timeout_seconds=1260, pod_resources_get=True
    ),
}
KUBELET = """# As a node without an API server: it runs nothing, and tells its configuration to anybody.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
"""
CONTAINERD = "/etc/containerd/config.toml"
CONTAINERD_UNIT = """[Service]
Type=notify
ExecStart=/usr/local/bin/containerd
Delegate=yes
KillMode=process
[Install]
WantedBy=multi-user.target
"""
# As in the packages of Kubernetes: no type is stated.
KUBELET_UNIT = """[Service]
EnvironmentFile=/etc/default/kubelet
ExecStart=/usr/local/bin/kubelet $FILES
Restart=always
StartLimitIntervalSec=0
RestartSec=10
[Install]
WantedBy=multi-user.target
"""
PLAIN = "FILES=--config=/var/lib/kubelet/config.yaml\n"
WITH_DROP_INS = f"{PLAIN.strip()} --config-dir=/etc/kubernetes/kubelet.conf.d\n"


@pytest.fixture(scope="module")
def node(machine: RealMachine) -> RealMachine:
    """A machine with containerd and kubelet of today, which run."""
    programs = ensure(["kubelet", "containerd", "containerd-shim-runc-v2", "runc"])
    for name, path in programs.items():
        put(machine, f"/usr/local/bin/{name}", path.read_bytes(), mode="755")
    put(machine, "/etc/systemd/system/containerd.service", CONTAINERD_UNIT.encode())
    put(machine, "/etc/systemd/system/kubelet.service", KUBELET_UNIT.encode())
    put(machine, "/var/lib/kubelet/config.yaml", KUBELET.encode())
    put(machine, "/etc/default/kubelet", PLAIN.encode())
    machine.sudo("mkdir -p /etc/kubernetes/kubelet.conf.d; systemctl daemon-reload")
    machine.sudo(f"systemctl enable --now {' '.join(UNITS)}")
    # A processor that is emulated takes ten times as long to read a file and end.
    put(machine, "/usr/local/bin/sleep", b'#!/bin/sh\nexec /usr/bin/sleep "${1}0"\n', mode="755")
    return machine


def put(machine: RealMachine, path: str, content: bytes, *, mode: str = "644") -> None:
    line = f"mkdir -p {Path(path).parent}; cat >{path}; chmod {mode} {path}"
    words = ["sh", "-c", line]
    done = machine.ssh.run(words, tried="write", stdin=content, as_root=True, timeout_seconds=600)
    assert done.status == 0, done.stderr


def kubelet_says(node: RealMachine) -> Mapping[str, object]:
    """The configuration that is in force, once it answers."""
    said = eventually(
        lambda: node.run("curl -sk https://127.0.0.1:10250/configz").stdout,
        lambda: node.sudo("journalctl -u kubelet -n 30 --no-pager"),
    )
    found: Mapping[str, object] = json.loads(said)["kubeletconfig"]
    return found


def reload_runtime(node: RealMachine) -> None:
    run_script(node.ssh, "cdi/reload-runtime", UNITS, tried="reload the runtime")


def test_drop_ins_are_in_force_when_the_runtimes_start_again(
    node: RealMachine, provider: ProviderProcess
) -> None:
    assert kubelet_says(node)["runtimeRequestTimeout"] == "2m0s"
    before = node.sudo(f"systemctl show -P MainPID {' '.join(UNITS)}").split()
    for path, text in TEXTS.items():
        inputs = {"connection": node.connection, "path": path, "content": text}
        provider.create(HostFileProvider, inputs)
    # Neither Debian's config.toml nor the unit of Kubernetes' packages names a folder of drop-ins.
    with pytest.raises(AdapterError, match=rf"write imports = .*{CONTAINERD}"):
        reload_runtime(node)
    node.sudo(f"containerd config default >{CONTAINERD}")
    with pytest.raises(AdapterError, match="start it with --config-dir"):
        reload_runtime(node)
    put(node, "/etc/default/kubelet", WITH_DROP_INS.encode())
    reload_runtime(node)
    after = node.sudo(f"systemctl show -P MainPID {' '.join(UNITS)}").split()
    assert not set(before) & set(after)
    said = kubelet_says(node)
    assert said["runtimeRequestTimeout"] == "21m0s"
    assert said["featureGates"] == {"KubeletPodResourcesGet": True}
    merged = node.sudo("containerd config dump")
    assert "/run/lab-cdi" in merged
    assert "1234s" in merged


@pytest.mark.parametrize(
    ("path", "unit"), [*zip(TEXTS, UNITS, strict=True)], ids=("containerd", "kubelet")
)
def test_a_drop_in_that_cannot_be_read_is_told_with_its_unit_and_put_back(
    node: RealMachine, provider: ProviderProcess, path: str, unit: str
) -> None:
    inputs = {"connection": node.connection, "path": path, "content": TEXTS[path]}
    made: Made = provider.create(HostFileProvider, inputs)
    node.sudo(f"echo '{{' >>{path}")
    with pytest.raises(AdapterError, match=unit):
        reload_runtime(node)
    assert provider.read(HostFileProvider, made).outputs["drift"] != []
    provider.update(HostFileProvider, made, inputs)
    reload_runtime(node)
    assert kubelet_says(node)["runtimeRequestTimeout"] == "21m0s"
