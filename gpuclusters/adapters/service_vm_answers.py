"""What a host says about its service VM: the answer of `inspect.sh`, and errors of virsh with a remedy."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from gpuclusters.adapters.errors import AdapterError, CommandFailedError
from gpuclusters.adapters.scripts import last_lines
from gpuclusters.domain.service_vm_state import LiveVm

# What virsh says when it refuses, and what to do; the first that fits.
_KNOWN: Mapping[str, str] = {
    "is not viable": "bind every function of that IOMMU group to vfio-pci: the switches' group on Supermicro "
    "holds the memory controller 11f8:4128 as well",
    "not bound to": "bind the function to vfio-pci, then run again",
    "No such file or directory": "compare the PCI addresses of switches and extra functions with "
    "`lspci -D` on the host, and the firmware's path with the package ovmf",
    "not found": "compare the PCI addresses of switches and extra functions with `lspci -D` on the host",
    "already in use by": "stop the domain that holds the function",
    "network is already in use by interface": "choose another range for service-vm.network",
    "already exists with uuid": "give the VM or its network another name, or remove the other one",
    "Cannot allocate memory": "free memory on the host: huge pages that are reserved for guests "
    "are not available",
}


def with_remedy(error: CommandFailedError) -> AdapterError:
    """The error of a step with what to do, where its words are known."""
    if error.problem.startswith("exit status 127"):
        remedy = (
            "install libvirt, QEMU and qemu-img on the host (libvirt-daemon-system, qemu-utils)"
        )
        return CommandFailedError(error.where, error.tried, error.problem, remedy)
    for sign, remedy in _KNOWN.items():
        if sign in error.problem:
            return CommandFailedError(error.where, error.tried, error.problem, remedy)
    return error


def parsed(output: str) -> LiveVm:
    """The answer of `inspect.sh`.

    Raises:
        ValueError: it is none.
    """
    values: dict[str, str] = {}
    files: dict[str, str] = {}
    disabled: list[str] = []
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        if key == "file":
            digest, _, path = value.partition(" ")
            files[path] = digest
        elif key == "disabled":
            disabled.append(value)
        else:
            values[key] = value
    if "boot" not in values:
        raise ValueError("the host did not say its boot id")
    problem = _decoded(values, "problem")
    return LiveVm(
        problem=None if problem is None else last_lines(problem),
        boot_id=values["boot"],
        network=_decoded(values, "network"),
        network_active=values.get("network-active") == "yes",
        network_autostart=values.get("network-autostart") == "yes",
        domain=_decoded(values, "domain"),
        running_domain=_decoded(values, "running"),
        state=values.get("state"),
        number=values.get("number", "-"),
        autostart=values.get("autostart") == "enable",
        backing=values["backing"].removeprefix("-") if "backing" in values else None,
        seed=values.get("seed"),
        image_verified=values.get("image") == "verified",
        files=files,
        disabled=tuple(disabled),
        stale="stale" in values,
        console=_decoded(values, "console") or "",
        host_key=(_decoded(values, "hostkey") or "").strip(),
    )


def _decoded(values: Mapping[str, str], key: str) -> str | None:
    if key not in values:
        return None
    return base64.b64decode(values[key]).decode(errors="replace")
