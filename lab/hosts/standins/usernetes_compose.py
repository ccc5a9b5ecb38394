"""What `docker compose up --build` of a Usernetes node would refuse on a simulated host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lab.hosts import rootless
from lab.hosts.accounts import Account
from lab.hosts.faults import PortTaken
from lab.hosts.standins.call import Call
from lab.hosts.standins.usernetes_words import BUILD_FAILS, START_FAILS
from lab.hosts.usernetes_faults import NodeImageFails, NodeStartFails


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
