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
from tests.fixtures.tables import beside
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
CONTAINERD = "/etc/containerd/config.toml"
LAID: dict[str, str] = beside(__file__, "runtimes.yaml")
FLAGS = "/etc/default/kubelet"


@pytest.fixture(scope="module")
def node(machine: RealMachine) -> RealMachine:
    """A machine with containerd and kubelet of today, which run."""
    programs = ensure(["kubelet", "containerd", "containerd-shim-runc-v2", "runc"])
    for name, program in programs.items():
        put(machine, f"/usr/local/bin/{name}", program.read_bytes(), mode="755")
    for path, text in LAID.items():
        put(machine, path, text.encode())
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
    put(
        node, FLAGS, f"{LAID[FLAGS].strip()} --config-dir=/etc/kubernetes/kubelet.conf.d\n".encode()
    )
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
