"""The node container on one simulated host: its life in the rootless daemon, and what its unit of GPUs does.

The unit does what the text of `node-gpus.sh` in the image says: without `--device-name-strategy=uuid` the
specification has no UUIDs, without `--set-as-default` the default runtime stays runc.
"""

import secrets
from datetime import UTC, datetime
from typing import Any

from lab.hosts.accounts import Account, accounts
from lab.hosts.faults import Faults, NodeGpusFail
from lab.hosts.machine import Machine
from lab.hosts.nvidia import driver
from lab.hosts.usernetes import rootless

NAME = "usernetes-node"
PROJECT = "usernetes"

Object = dict[str, Any]


def container(machine: Machine, account: Account) -> Object | None:
    """The container in the account's daemon, if there is one."""
    found: Object | None = rootless.state(machine, account)["containers"].get(NAME)
    return found


def is_running(machine: Machine, node: Object) -> bool:
    """Whether the node container of a host runs; its daemon stops with the account's systemd."""
    account = accounts(machine).get(node["account"])
    if account is None:
        return False
    mine = container(machine, account)
    return bool(mine and mine["running"] and rootless.is_running(machine, account))


def create(machine: Machine, account: Account, image: str) -> None:
    rootless.state(machine, account)["containers"][NAME] = {
        "running": True,
        "restart": "always",
        "image": image,
        "id": secrets.token_hex(32),
        "started": datetime.now(UTC).isoformat(),
    }


def delete(machine: Machine, account: Account) -> None:
    rootless.state(machine, account)["containers"].pop(NAME, None)


def starts(machine: Machine, node: Object) -> int:
    """How often the daemon was started, and the container with it."""
    account = accounts(machine).get(node["account"])
    return int(rootless.state(machine, account)["starts"]) if account else 0


def set_up(machine: Machine, node: Object, faults: Faults) -> None:
    """What `usernetes-gpus.service` in the node does."""
    text = node["gpu_script"]
    fault = faults.first(NodeGpusFail)
    why = fault.why if fault else ""
    uuids = list(devices(machine, node, faults))
    node["started_with"] = starts(machine, node)
    if why == "nvml" or not uuids:
        node |= {"unit": "failed", "gpus": [], "names": []}
        node["journal"] = 'level=error msg="failed to initialize NVML: Unknown Error"'
        return
    by_uuid = "--device-name-strategy=uuid" in text and why != "index-names"
    names = uuids if by_uuid else [str(index) for index in range(len(uuids))]
    node["unit"], node["journal"] = "active", ""
    node["names"] = [*names, "all"]
    node["gpus"] = uuids if by_uuid else []
    default = "--set-as-default" in text and why != "not-default-runtime"
    node["default_runtime"] = "nvidia" if default else "runc"
    node["cdi_mode"] = "nvidia-container-runtime.mode=cdi" in text and why != "legacy-mode"


def settle(machine: Machine, node: Object, faults: Faults) -> None:
    """Let a container that was started anew, with its daemon, have run its unit."""
    if node["started_with"] != starts(machine, node) and is_running(machine, node):
        set_up(machine, node, faults)


def devices(machine: Machine, node: Object, faults: Faults) -> tuple[str, ...]:
    """UUIDs of the GPUs that the container sees: those of the host, if it was given any."""
    return driver.uuids_served(machine, faults) if node["has_devices"] else ()
