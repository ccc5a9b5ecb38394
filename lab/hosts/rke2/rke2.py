"""Stand-in for `rke2 server` and `rke2 agent`: joins one of the simulated clusters, or says why not.

Behaviour after RKE2's documentation and sources: configuration from `config.yaml` and `config.yaml.d`; an
agent that cannot join stays and tries for ever, with a line in the journal each time; `server:` counts only
until the host has etcd data; servers that differ in shared settings end with a fatal error; `profile: cis`
needs the user etcd and kernel parameters; a node name is bound to `/etc/rancher/node/password`. On a host
that is one machine with a real node, containerd and the kubelet of that node follow it: see `rke2_real`.
"""

import asyncio
import secrets
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from lab.hosts import certificates
from lab.hosts.call import Answer, Call
from lab.hosts.faults import JoinFails, JoinIsSlow
from lab.hosts.kubectl import Object
from lab.hosts.machine import Machine
from lab.hosts.program import STAND_IN, program
from lab.hosts.rke2 import rke2_cluster, rke2_release
from lab.hosts.rke2.rke2_cluster import Clusters
from lab.hosts.rke2.rke2_real import Rke2Node
from lab.hosts.rke2.rke2_release import read_config
from lab.hosts.systemd import units
from lab.kubeconfig import of_lab
from lab.nodes.rke2 import runtimes

_PAUSE_SECONDS = 0.05
_CIS_PARAMETERS = {
    "vm.panic_on_oom": "0",
    "vm.overcommit_memory": "1",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
}


class _FatalError(Exception):
    """RKE2 ends with this as its last line."""


class _NotYetError(Exception):
    """RKE2 says this and tries again."""


@program(rke2_release.PROGRAM, unknown=None)
async def rke2(call: Call) -> Answer:
    """`rke2 --version`, `rke2 server`, `rke2 agent`; the first argument is the installed release.

    `killall` is the part of `rke2-killall.sh` that a host cannot do: it does not see the node's containers.
    """
    version, *words = call.arguments
    if words == ["killall"]:
        return await _kill_all(call)
    if words in (["--version"], ["-v"]):
        return Answer.out(f"rke2 version {version} {STAND_IN}\ngo version go1.26.1")
    if words not in (["server"], ["agent"]):
        return Answer.error("rke2: only --version, server and agent on a simulated host", 1)
    if not call.is_root:
        return Answer.error('level=fatal msg="must run as root"', 1)
    (role,) = words
    unit = f"rke2-{role}.service"
    state: dict[str, Any] = call.machine.state.setdefault("rke2", {})
    mine = state["invocation"] = call.environment.get("INVOCATION_ID", "")
    began = time.monotonic()
    said = ""
    while state.get("invocation") == mine:
        try:
            _join(call, role, version, time.monotonic() - began)
        except _FatalError as error:
            _say(call, unit, "fatal", str(error))
            return Answer(1)
        except _NotYetError as error:
            if str(error) != said:
                said = str(error)
                _say(call, unit, "info", said)
            if units.state(call.machine, unit)["active"] != "activating":
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            node = Rke2Node.of(call.machine)
            if node is not None:
                await asyncio.to_thread(node.restart_programs)
            _say(call, unit, "info", f"rke2 {role} is up and running")
            return Answer(never=True)
    return Answer(143)


async def _kill_all(call: Call) -> Answer:
    if not call.is_root:
        return Answer.error('level=fatal msg="must run as root"', 1)
    node = Rke2Node.of(call.machine)
    if node is not None:
        await asyncio.to_thread(node.kill_all)
    return Answer()


def _say(call: Call, unit: str, level: str, message: str) -> None:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    quoted = message.replace('"', '\\"')
    with units.log_path(call.machine, unit).open("a") as log:
        log.write(f'time="{stamp}" level={level} msg="{quoted}"\n')


def _join(call: Call, role: str, version: str, seconds: float) -> None:
    machine = call.machine
    clusters = Clusters(machine.folder.path.parent)
    config = read_config(machine.folder.root)
    _check_host(machine, config)
    node = config.get("node-name", machine.name)
    server = config.get("server", "")
    slow = call.faults.first(JoinIsSlow)
    if slow is not None and seconds < slow.seconds:
        raise _NotYetError("Waiting for containerd startup: images are being imported")
    cluster = clusters.of_host(machine.name)
    if cluster is None and not server:
        if role == "agent":
            raise _FatalError("--server is required")
        cluster = clusters.make(machine.name, node, config)
    elif cluster is None:
        cluster = _admitted(call, clusters, config, role, node)
    elif role == "agent" and not clusters.serving(cluster):
        raise _NotYetError(_refused(urlsplit(server).hostname or ""))
    _register(machine, clusters, cluster, config, role, node, version)


def _check_host(machine: Machine, config: Object) -> None:
    if config.get("profile") == "cis":
        if "\netcd:" not in "\n" + (machine.read_text("/etc/passwd") or ""):
            raise _FatalError("missing required: user: unknown user etcd")
        values = machine.state.get("sysctl", {})
        for key, value in _CIS_PARAMETERS.items():
            if values.get(key) != value:
                raise _FatalError(
                    f"invalid kernel parameter value {key}={values.get(key, '?')} - expected {value}"
                )
    runtime = config.get("default-runtime", "")
    if runtime and runtime not in runtimes(machine.folder.root):
        raise _FatalError(f"default runtime {runtime} was not found")


def _refused(address: str) -> str:
    return (
        f"failed to get CA certs: Get https://{address}:9345/cacerts: dial tcp {address}:9345: "
        "connect: connection refused"
    )


def _admitted(call: Call, clusters: Clusters, config: Object, role: str, node: str) -> Object:
    """The cluster, if it lets this host in."""
    address = urlsplit(config["server"]).hostname or ""
    fault = call.faults.first(JoinFails)
    why = fault.why if fault else ""
    cluster = clusters.at(address)
    if cluster is None or why in ("port-closed", "server-lost"):
        if why == "server-lost":
            raise _NotYetError(
                f"failed to retrieve configuration from server: Get https://{address}:9345/v1-rke2/config: "
                "context deadline exceeded"
            )
        raise _NotYetError(_refused(address))
    if why == "clock-skew":
        raise _NotYetError(
            "failed to get CA certs: tls: failed to verify certificate: x509: certificate has expired or "
            "is not yet valid: current time 2024-01-01T00:00:00Z is before 2026-11-21T00:00:00Z"
        )
    accepted = {cluster["token"]} | ({cluster["agent-token"]} if role == "agent" else set())
    if config.get("token") not in accepted or why == "wrong-token":
        raise _NotYetError(
            f"failed to retrieve configuration from server: https://{address}:9345/v1-rke2/config: "
            "401 Unauthorized"
        )
    password = call.machine.read_text("/etc/rancher/node/password")
    bound = cluster["passwords"].get(node)
    if (bound is not None and bound != password) or why == "duplicate-name":
        raise _NotYetError(
            "Waiting to retrieve agent configuration; server is not ready: Node password rejected, "
            "duplicate hostname or contents of '/etc/rancher/node/password' may not match server "
            "node-passwd entry, try enabling a unique node name with the --with-node-id flag"
        )
    if role == "server" and rke2_cluster.shared(config) != cluster["shared"]:
        raise _FatalError(
            "starting kubernetes: preparing server: failed to validate server configuration: critical "
            "configuration value mismatch between servers"
        )
    return cluster


def _register(
    machine: Machine,
    clusters: Clusters,
    cluster: Object,
    config: Object,
    role: str,
    node: str,
    version: str,
) -> None:
    write = partial(machine.write, mode=0o600)
    password = machine.read_text("/etc/rancher/node/password")
    if password is None:
        password = secrets.token_hex(16)
        write("/etc/rancher/node/password", password)
    cluster["passwords"][node] = password
    cluster["members"][machine.name] = {"role": role, "version": version, "node": node}
    if node not in cluster["nodes"]:
        cluster["nodes"][node] = rke2_cluster.new_node(node, machine.name, role, config)
    data = rke2_cluster.DATA
    write(f"{data}/agent/client-kubelet.crt", certificates.leaf(node))
    _write_containerd(machine, node, version)
    machine.write(f"{data}/bin/kubectl", f'#!/bin/sh\nexec {rke2_cluster.KUBECTL} "$@"\n', 0o755)
    write("/run/k3s/containerd/containerd.sock", "")
    if role == "server":
        token = f"K10{'0' * 64}::server:{cluster['token']}\n"
        lab, local = clusters.folder.parent, "https://127.0.0.1:6443"
        write(f"{data}/server/tls/serving-kube-apiserver.crt", certificates.leaf("kube-apiserver"))
        write(f"{data}/server/token", token)
        write(f"{data}/server/node-token", token)
        write("/etc/rancher/rke2/rke2.yaml", of_lab(lab, local, name="default", client="default"))
    clusters.save(cluster)
    machine.note("rke2", action="joined", role=role, node=node, version=version)


def _write_containerd(machine: Machine, name: str, version: str) -> None:
    """Anew at each start, by what is there now; `name` is the node's."""
    node = Rke2Node.of(machine)
    if node is None:
        folder = f"{rke2_cluster.DATA}/agent/etc/containerd"
        template = machine.read_text(f"{folder}/config-v3.toml.tmpl")
        text = "version = 3\n"
        if rke2_release.imports_drop_ins(version):
            text += f"imports = ['{folder}/config-v3.toml.d/*.toml']\n"
        machine.write(f"{folder}/config.toml", text if template is None else template, 0o600)
        return
    try:
        node.write(name)
    except ValueError as error:
        raise _FatalError(str(error)) from error
