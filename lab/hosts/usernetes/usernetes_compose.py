"""What `docker compose up --build` of a Usernetes node would refuse on a simulated host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lab.hosts.accounts import Account
from lab.hosts.call import Call
from lab.hosts.faults import PortTaken
from lab.hosts.usernetes import rootless
from lab.hosts.usernetes.usernetes_faults import NodeImageFails, NodeStartFails

BUILD_FAILS = {
    "wrong-tag": "#9 0.4 grep: /tmp/SHA256SUMS.d/cni-plugins-v1.6.2: No such file or directory",
    "toolkit-version": (
        "#14 3.1 E: Version '{version}-1' for 'nvidia-container-toolkit' was not found"
    ),
    "no-egress": "#9 10.2 curl: (6) Could not resolve host: github.com",
    "rate-limit": "failed to solve: toomanyrequests: You have reached your pull rate limit.",
    "disk-full": "failed to solve: write /layer.tar: no space left on device",
}
START_FAILS = {
    "cdi-unresolvable": (
        "Error response from daemon: CDI device injection failed: unresolvable CDI devices "
        "nvidia.com/gpu=all"
    ),
    "port-taken": (
        "Error response from daemon: failed to set up container networking: Bind for 0.0.0.0:6443 failed: "
        "port is already allocated"
    ),
    "subnet-overlap": (
        "failed to create network usernetes_default: Error response from daemon: invalid pool request: Pool "
        "overlaps with other one on this address space"
    ),
    "rp-filter": (
        '[ERROR] sysctl value "net.ipv4.conf.default.rp_filter" must be 0 (disabled) or 2 (loose) in the '
        "container engine's network namespace"
    ),
    "delegation": "UserNS: cpu controller needs to be delegated",
}
JOIN_FAILS = {
    "token-expired": (
        "error execution phase preflight: couldn't validate the identity of the API Server: could not "
        'find a JWS signature in the cluster-info ConfigMap for token ID "abcdef"'
    ),
    "clock-skew": (
        "error execution phase preflight: tls: failed to verify certificate: x509: certificate has "
        "expired or is not yet valid"
    ),
    "port-closed": (
        "error execution phase preflight: couldn't validate the identity of the API Server: dial tcp "
        "10.128.0.6:6443: connect: connection refused"
    ),
    "other-cluster": (
        "error execution phase preflight: cluster CA found in cluster-info ConfigMap is invalid: none of the "
        "public keys are pinned"
    ),
    "kubelet-down": (
        "[kubelet-check] Initial timeout of 4m0s passed.\nerror: timed out waiting for the condition"
    ),
}


def _text(call: Call, path: str) -> str:
    return call.machine.read_text(path) or ""


def overlay_problem(call: Call, folder: str) -> str | None:
    """What compose would say about our overlay."""
    environment = call.environment
    overlay = environment["GPU_OVERLAY"]
    files = re.findall(r"-f (\S+)", environment["COMPOSE"])
    for file in files:
        path = file if file.startswith("/") else f"{folder}/{file}"
        if call.machine.read_text(path) is None:
            return f"open {path}: no such file or directory"
    if f"{overlay}/compose.yaml" not in files:
        return "the compose overlay is not named"
    made = _text(call, f"{overlay}/Dockerfile")
    if not made.startswith(_text(call, f"{folder}/Dockerfile")):
        return f"{overlay}/Dockerfile: it does not begin with upstream's"
    if "nvidia-container-toolkit=" not in made:
        return f"{overlay}/Dockerfile: no container toolkit is installed"
    return None


def build_problem(call: Call) -> str | None:
    """What BuildKit would say about the node image."""
    fault = call.faults.first(NodeImageFails)
    if fault is None:
        return None
    return BUILD_FAILS[fault.why].format(**_told(call))


def _told(call: Call) -> Mapping[str, str]:
    return {"version": call.environment["NVIDIA_CONTAINER_TOOLKIT_VERSION"]}


def start_problem(call: Call, account: Account) -> str | None:
    """What the daemon would say when it starts the container."""
    fault = call.faults.first(NodeStartFails)
    if fault is not None:
        return START_FAILS[fault.why]
    engine = rootless.engine(call.machine, account, call.faults)
    if "nvidia.com/gpu=all" not in engine.cdi_devices:
        return START_FAILS["cdi-unresolvable"]
    ports = [value for name, value in call.environment.items() if name.startswith("PORT_")]
    for taken in call.faults.all(PortTaken):
        if str(taken.port) in ports:
            return START_FAILS["port-taken"]
    return None
