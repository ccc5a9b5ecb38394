"""Rows 2, 3 and 4: the network, the image and the packages of the service VM."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.places import service_vm_network
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Path
from gpuclusters.domain.rke2_matrix import branch_of
from gpuclusters.driver.model import FABRIC_MANAGER, fabric_manager
from gpuclusters.tenancy.ranges import Range, overlapping

_BRIDGE_LENGTH = 15
_UBUNTUS = "ubuntu"
"""Is in the version of every package that Ubuntu builds; those of NVIDIA end in -1."""


@rule(3, "caas.service-vm-address")
def the_service_vm_is_on_its_own_network(config: CaasConfig) -> Iterable[Finding]:
    vm = config.service_vm
    network = service_vm_network(config)
    path: Path = ("service-vm", "bind-address")
    if len(vm.network.bridge) > _BRIDGE_LENGTH:
        yield finding(
            ("service-vm", "network", "bridge"),
            f"is longer than the {_BRIDGE_LENGTH} characters that the kernel takes",
            show(vm.network.bridge),
            "write a shorter name, or leave it out for br-fm",
        )
    if vm.bind_address == vm.network.host_address:
        yield finding(
            path,
            "is the machine's own address on that network",
            show(str(vm.bind_address)),
            f"write another address of {network}",
        )
    elif vm.bind_address.is_unspecified or vm.bind_address.is_loopback:
        return  # said by the rule about who may reach it
    elif vm.bind_address in (network.network_address, network.broadcast_address):
        yield finding(
            path,
            f"names the whole of {network}, not one machine on it",
            show(str(vm.bind_address)),
            "write an address between the first and the last",
        )
    elif vm.bind_address not in network and not vm.bind_address.is_multicast:
        yield finding(
            path,
            f"is not in service-vm.network ({network}), where its machine is",
            show(str(vm.bind_address)),
            "write an address of that range, or set network.host-address to the machine's",
        )


@rule(3, "caas.service-vm-network-overlap")
def the_network_of_the_service_vm_is_nobody_elses(config: CaasConfig) -> Iterable[Finding]:
    network = service_vm_network(config)
    others: dict[str, tuple[Range, ...]] = {
        "kubernetes.pod-cidr": (config.kubernetes.pod_cidr,),
        "kubernetes.service-cidr": (config.kubernetes.service_cidr,),
        "network.node-cidrs": config.network.node_cidrs,
        "network.bmc-cidrs": config.network.bmc_cidrs,
        "network.storage-cidrs": config.network.storage_cidrs,
    }
    for key, ranges in others.items():
        for other in overlapping(network, ranges):
            yield finding(
                ("service-vm", "network", "host-address"),
                f"makes {network}, which overlaps {key} ({other})",
                show(str(config.service_vm.network.host_address)),
                "write an address of a range that nothing else uses, and bind-address in it",
            )


@rule(4, "caas.service-vm-image")
def the_service_vm_has_an_image(config: CaasConfig) -> Iterable[Finding]:
    image = config.service_vm.image
    path: Path = ("service-vm", "image")
    if image is None:
        if isinstance(config.hosts, ExistingHosts):
            yield finding(
                path,
                "is missing: nothing says what the service VM boots",
                NOTHING,
                "write {path: FILE, sha256: CHECKSUM} or {url: ADDRESS, sha256: CHECKSUM} of an image "
                "with UEFI and cloud-init, as docs/service-vm.md describes",
            )
        return
    if (image.path is None) == (image.url is None):
        yield finding(
            path,
            "needs either path or url, and only one of them",
            show(
                {
                    key: value
                    for key, value in (("path", image.path), ("url", image.url))
                    if value is not None
                }
            ),
            "write where the image comes from once",
        )
    if image.path is not None and (not image.path.startswith("/") or image.path.endswith("/")):
        yield finding(
            (*path, "path"),
            "is not the absolute path of a file",
            show(image.path),
            "write for example /srv/images/fabric-manager.qcow2",
        )
    if image.url is not None and not image.url.startswith(("https://", "http://")):
        yield finding(
            (*path, "url"),
            "is not an address that a machine can download from",
            show(image.url),
            "write one that begins with https://",
        )


@rule(2, "caas.service-vm-packages")
def packages_of_the_service_vm_are_pinned(config: CaasConfig) -> Iterable[Finding]:
    packages = config.service_vm.packages
    if packages is None:
        return
    path: Path = ("service-vm", "packages", "packages")
    version = config.versions.fabric_manager
    found = {n: v for n, v in packages.packages.items() if n.startswith(FABRIC_MANAGER)}
    branch = branch_of(version)
    of_nvidia = fabric_manager(branch, of_ubuntu=False)
    if not found:
        yield finding(
            path,
            f"has no package {FABRIC_MANAGER}",
            show(sorted(packages.packages)),
            f'write it with its exact version: {of_nvidia}: "{version}-1" from NVIDIA\'s repository',
        )
    for name, its in packages.packages.items():
        if not its[0].isdigit() or "*" in its:
            yield finding(
                (*path, name),
                "is not an exact version",
                show(its),
                "write the version as `apt-cache madison` prints it",
            )
        elif name in found and its.partition("-")[0] != version:
            yield finding(
                (*path, name),
                f"is not versions.fabric-manager ({version})",
                show(its),
                f"write {version}-1, or the other version there",
            )
        elif name == fabric_manager(branch, of_ubuntu=True) != of_nvidia and _UBUNTUS not in its:
            yield finding(
                (*path, name),
                "is virtual in NVIDIA's repository from branch 590 on, and does not install at a version",
                show(its),
                f'write {of_nvidia}: "{its}"',
            )
