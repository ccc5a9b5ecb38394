"""What cloud-init in the service VM is told: user-data, meta-data, network-config (NoCloud).

There is no secret in it. The VM's SSH host key and its account, which the host enters with a key, are made on
the host and added there as vendor-data; they never leave it.

Source: cloud-init's documentation of NoCloud, its module reference, and network config version 2.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import yaml

from gpuclusters.core.model import BlockDumper
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
    fm, packages = vm.fabric_manager, vm.packages
    document: dict[str, Any] = {
        "hostname": vm.name,
        "manage_etc_hosts": True,
        "ssh_pwauth": False,
        "disable_root": True,
        "package_update": packages is not None,
        "package_upgrade": False,
        "write_files": [
            {"path": path, "owner": "root:root", "permissions": mode, "content": content}
            for path, (content, mode) in _files(vm, guest_script).items()
        ],
    }
    if packages is not None:
        document["apt"] = {"http_proxy": packages.proxy, "https_proxy": packages.proxy}
        document["packages"] = [list(item) for item in sorted(packages.packages.items())]
    document["runcmd"] = [[GUEST_SCRIPT, "start", fm.version]]
    user_data = "#cloud-config\n" + _yaml(document)
    address = f"{fm.bind_address}/{vm.network.prefix_length}"
    link = {"match": {"macaddress": MAC}, "dhcp4": False, "dhcp6": False, "addresses": [address]}
    network_config = _yaml({"version": 2, "ethernets": {"host-only": link}})
    # cloud-init does everything anew, and leaves the disk as it is, when the instance id is another.
    instance = f"{vm.name}-{_digest(user_data, network_config)[:16]}"
    meta_data = _yaml({"instance-id": instance, "local-hostname": vm.name})
    return Seed(user_data, meta_data, network_config)


def _files(vm: ServiceVmInputs, guest_script: str) -> dict[str, tuple[str, str]]:
    """Content and mode by path."""
    fm, plain = vm.fabric_manager, "0644"
    folder = (fm.state_file or "").rpartition("/")[0]
    made = f"ExecStartPre=/bin/mkdir -p {folder}\n" if folder else ""
    check = f"ExecStartPre={GUEST_SCRIPT} check {fm.version}\n"
    files = {
        # Before the service can start for the first time: cloud-init writes files early.
        fabric_manager_config.CONFIG_PATH: (fabric_manager_config.render(fm), plain),
        GUEST_SCRIPT: (guest_script, "0755"),
        DROP_IN: (f"[Service]\n{made}{check}Restart=on-failure\nRestartSec=10\n", plain),
        WATCHDOG: ("[Manager]\nRuntimeWatchdogSec=60\nRebootWatchdogSec=5min\n", plain),
    }
    if not vm.switches:
        # Switches without a PCI function of their own are managed through ConnectX-7 bridges.
        files["/etc/modules-load.d/gpu-clusters.conf"] = ("ib_umad\nmlx5_ib\n", plain)
    if fm.partitions is not None:
        table = fabric_manager_config.render_partitions(fm.partitions)
        files[fabric_manager_config.PARTITIONS_PATH] = (table, plain)
    if vm.packages is not None:
        line = vm.packages.repository.removeprefix("deb ")
        signed = f"deb [signed-by={_REPOSITORY_KEY}] {line}\n"
        files[_REPOSITORY_KEY] = (vm.packages.key, plain)
        files["/etc/apt/sources.list.d/gpu-clusters.list"] = (signed, plain)
    return files


def _digest(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _yaml(document: Any) -> str:
    return str(
        yaml.dump(document, Dumper=BlockDumper, sort_keys=False, allow_unicode=True, width=1000)
    )
