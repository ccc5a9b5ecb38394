"""What cloud-init in the service VM is told: user-data, meta-data, network-config (NoCloud).

There is no secret in it. The VM's SSH host key and its account, which the host enters with a key, are made on
the host and added there as vendor-data; they never leave it.

Source: cloud-init's documentation of NoCloud, its module reference, and network config version 2.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import yaml

from gpuclusters.fabric import manager_config as fabric_manager_config
from gpuclusters.service_vm.model import MAC, ServiceVmInputs

GUEST_SCRIPT = "/usr/local/sbin/gpu-clusters-fabric-manager"
UNIT = "nvidia-fabricmanager.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/50-gpu-clusters.conf"
WATCHDOG = "/etc/systemd/system.conf.d/50-gpu-clusters.conf"
_REPOSITORY_KEY = "/etc/apt/keyrings/gpu-clusters.asc"


@dataclass(frozen=True, slots=True)
class Seed:
    """The files of the seed that are known before the host is asked."""

    user_data: str
    meta_data: str
    network_config: str

    @property
    def digest(self) -> str:
        """Tells seeds apart; part of the VM's instance id, so that another seed is carried out."""
        return _digest(self.user_data, self.network_config)

    @property
    def files(self) -> dict[str, str]:
        """By their names in the seed."""
        return {
            "user-data": self.user_data,
            "meta-data": self.meta_data,
            "network-config": self.network_config,
        }


def seed(vm: ServiceVmInputs, guest_script: str) -> Seed:
    """The seed of a VM."""
    user_data = _user_data(vm, guest_script)
    network_config = _yaml(_network(vm))
    # cloud-init does everything anew, and leaves the disk as it is, when the instance id is another.
    instance = f"{vm.name}-{_digest(user_data, network_config)[:16]}"
    meta_data = _yaml({"instance-id": instance, "local-hostname": vm.name})
    return Seed(user_data, meta_data, network_config)


def _user_data(vm: ServiceVmInputs, guest_script: str) -> str:
    fm = vm.fabric_manager
    document: dict[str, Any] = {
        "hostname": vm.name,
        "manage_etc_hosts": True,
        "ssh_pwauth": False,
        "disable_root": True,
        "package_update": False,
        "package_upgrade": False,
        "write_files": _files(vm, guest_script),
    }
    if vm.packages is not None:
        document["package_update"] = True
        document["apt"] = {"http_proxy": vm.packages.proxy, "https_proxy": vm.packages.proxy}
        document["packages"] = [list(item) for item in sorted(vm.packages.packages.items())]
    document["runcmd"] = [[GUEST_SCRIPT, "start", fm.version]]
    return "#cloud-config\n" + _yaml(document)


def _files(vm: ServiceVmInputs, guest_script: str) -> list[dict[str, Any]]:
    fm = vm.fabric_manager
    files = [
        # Before the service can start for the first time: cloud-init writes files early.
        _file(fabric_manager_config.CONFIG_PATH, fabric_manager_config.render(fm)),
        _file(GUEST_SCRIPT, guest_script, mode="0755"),
        _file(DROP_IN, _drop_in(fm.version, fm.state_file)),
        _file(WATCHDOG, "[Manager]\nRuntimeWatchdogSec=60\nRebootWatchdogSec=5min\n"),
    ]
    if not vm.switches:
        # Switches without a PCI function of their own are managed through ConnectX-7 bridges.
        files.append(_file("/etc/modules-load.d/gpu-clusters.conf", "ib_umad\nmlx5_ib\n"))
    if fm.partitions is not None:
        table = fabric_manager_config.render_partitions(fm.partitions)
        files.append(_file(fabric_manager_config.PARTITIONS_PATH, table))
    if vm.packages is not None:
        line = vm.packages.source.removeprefix("deb ")
        signed = f"deb [signed-by={_REPOSITORY_KEY}] {line}\n"
        files += [
            _file(_REPOSITORY_KEY, vm.packages.key),
            _file("/etc/apt/sources.list.d/gpu-clusters.list", signed),
        ]
    return files


def _drop_in(version: str, state_file: str | None) -> str:
    folder = "" if state_file is None else state_file.rpartition("/")[0]
    made = f"ExecStartPre=/bin/mkdir -p {folder}\n" if folder else ""
    return (
        "[Service]\n"
        f"{made}"
        f"ExecStartPre={GUEST_SCRIPT} check {version}\n"
        "Restart=on-failure\n"
        "RestartSec=10\n"
    )


def _network(vm: ServiceVmInputs) -> dict[str, Any]:
    address = f"{vm.fabric_manager.bind_address}/{vm.network.prefix_length}"
    link = {"match": {"macaddress": MAC}, "dhcp4": False, "dhcp6": False, "addresses": [address]}
    return {"version": 2, "ethernets": {"host-only": link}}


def _file(path: str, content: str, *, mode: str = "0644") -> dict[str, Any]:
    return {"path": path, "owner": "root:root", "permissions": mode, "content": content}


def _digest(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks: people read seeds."""


def _block(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _block)


def _yaml(document: Any) -> str:
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000))
