"""What can be wrong with the account, drivers, programs and the fabric manager of a machine."""

from __future__ import annotations

from collections.abc import Mapping

from gpuclusters.domain.preflight_kind import BARE, PREPARED, Kind, Severity

_VFIO = "Linux, Documentation/driver-api/vfio.rst"
_KATA_GPU = "NVIDIA GPU Operator, Kata Containers, prerequisites"
_WP = "NVIDIA WP-12736-002, shared NVSwitch passthrough"
_BOOT = "published boot measurements of HGX H100 hosts with Kata"
_FM = "NVIDIA Fabric Manager User Guide"
_FMPM = "NVIDIA/Fabric-Manager-Client, nv_fm_types.h"

KINDS: Mapping[str, Kind] = {
    # The account
    "sudo-password": Kind(
        cause="the account cannot become root without a password, so nothing could be prepared",
        remedy="add `USER ALL=(ALL) NOPASSWD: ALL` to a file in /etc/sudoers.d",
        source="sudoers(5)",
    ),
    "fuser-missing": Kind(
        cause="who has the GPUs open cannot be asked for",
        remedy="install psmisc (preparation does)",
        source="fuser(1)",
        severity=Severity.WARNING,
    ),
    # Drivers and users
    "driver-loaded": Kind(
        cause="a GPU driver of the host is loaded (nvidia or nouveau); it would take GPUs that VMs give back",
        remedy="blacklist it (preparation does), remove the NVIDIA packages and reboot",
        source=_KATA_GPU,
        stages=PREPARED,
    ),
    "driver-installed": Kind(
        cause="the NVIDIA driver is installed on the host; it comes with rules that load and bind it",
        remedy="remove it: `apt-get purge '^nvidia-driver-.*' '^nvidia-dkms-.*' '^nvidia-kernel-.*'`, or "
        "`dnf remove 'kmod-nvidia*'`",
        source=_KATA_GPU,
    ),
    "not-on-vfio": Kind(
        cause="a GPU or switch is not bound to vfio-pci",
        remedy="read `systemctl status` and the journal of the unit that binds it, and `dmesg | grep vfio`",
        source=_VFIO,
        stages=PREPARED,
    ),
    "gpus-in-use": Kind(
        cause="processes of the host use the GPUs; preparation would take them away",
        remedy="end these processes first",
        source=_VFIO,
        stages=BARE,
    ),
    "vfio-node-missing": Kind(
        cause="the device node through which a VM gets its GPU is not there",
        remedy="load vfio-pci (and iommufd) and look into `dmesg | grep -i -e vfio -e iommu`",
        source=_VFIO,
        stages=PREPARED,
    ),
    "iommufd-missing": Kind(
        cause="iommufd is asked for and the kernel has no /dev/iommu",
        remedy="take a kernel of 6.6 or newer with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV, or write "
        "legacy",
        source="Linux, Documentation/userspace-api/iommufd.rst",
        stages=PREPARED,
    ),
    "kvm-missing": Kind(
        cause="/dev/kvm is not there: no VM can be started",
        remedy="load kvm_intel or kvm_amd; if that fails, switch on virtualization in the firmware setup",
        source="Linux, Documentation/virt/kvm",
        stages=PREPARED,
    ),
    # Versions
    "kernel-old": Kind(
        cause="before Linux 6.12 the memory of GPUs is mapped in pages of 4 KiB: seconds more for each GPU "
        "of a VM, and before 6.8 minutes",
        remedy="boot a kernel of 6.12 or newer, best of 6.15 (Ubuntu: linux-generic-hwe)",
        source=_BOOT,
        severity=Severity.WARNING,
    ),
    "qemu-missing": Kind(
        cause="there is no QEMU for the service VM",
        remedy="install qemu-system-x86 (preparation does; see its output)",
        source="libvirt, drivers: QEMU",
        stages=PREPARED,
    ),
    "qemu-old": Kind(
        cause="before QEMU 9.2 memory windows are mapped unaligned, so that huge pages cannot be used",
        remedy="install QEMU 9.2 or newer; VMs of tenants use Kata's own",
        source=_BOOT,
        severity=Severity.WARNING,
    ),
    "libvirt-missing": Kind(
        cause="there is no libvirt for the service VM",
        remedy="install libvirt-daemon-system (preparation does; see its output)",
        source="libvirt",
        stages=PREPARED,
    ),
    "libvirt-old": Kind(
        cause="before libvirt 8.7 a VM's address space cannot be set, and large memory windows do not fit",
        remedy="install libvirt 8.7 or newer",
        source="libvirt, formatdomain: maxphysaddr",
        severity=Severity.WARNING,
    ),
    "ovmf-missing": Kind(
        cause="there is no UEFI firmware for the service VM",
        remedy="install ovmf (Debian, Ubuntu) or edk2-ovmf (preparation does; see its output)",
        source="libvirt, formatdomain: firmware",
        stages=PREPARED,
    ),
    "no-systemd": Kind(
        cause="there is no systemctl; preparation works with systemd units",
        remedy="take a distribution with systemd",
        source="systemctl(1)",
    ),
    "no-package-manager": Kind(
        cause="there is neither apt-get nor dnf to install QEMU and libvirt with",
        remedy="take Debian, Ubuntu, or a distribution with dnf",
        source="apt-get(8), dnf(8)",
        stages=BARE,
    ),
    # The fabric manager, only of a cluster that runs
    "fabric-client-missing": Kind(
        cause="the fabric manager's client fmpm is not on the machine",
        remedy="install NVIDIA's Fabric-Manager-Client",
        source=_FMPM,
        stages=PREPARED,
    ),
    "fabric-unreachable": Kind(
        cause="nobody answers at the fabric manager's address: the service VM is off, or "
        "FM_CMD_BIND_INTERFACE is 127.0.0.1 inside it",
        remedy="`virsh list --all`; then compare FM_CMD_BIND_INTERFACE with service-vm.bind-address",
        source=_FM,
        stages=PREPARED,
    ),
    "fabric-initialising": Kind(
        cause="the fabric manager is not ready: still initialising, or it waits for the list of active "
        "partitions after a restart (-8)",
        remedy="wait a minute; then `gpu-clusters up`, which tells it the list",
        source=_FM,
        stages=PREPARED,
    ),
    "fabric-mode": Kind(
        cause="the fabric manager does not do shared NVSwitch (-3)",
        remedy="set FABRIC_MODE=1 in fabricmanager.cfg of the service VM and restart it",
        source=_FM,
        stages=PREPARED,
    ),
    "fabric-version": Kind(
        cause="client and fabric manager are of different versions (-6)",
        remedy="install the client of the fabric manager's version",
        source=_FM,
        stages=PREPARED,
    ),
    "fabric-failed": Kind(
        cause="the fabric manager answers with an error; it may stay resident after it failed, so that "
        "its unit is active all the same",
        remedy="read /var/log/fabricmanager.log in the service VM",
        source=_FM,
        stages=PREPARED,
    ),
    "fabric-partitions": Kind(
        cause="the fabric manager offers fewer partitions than the board has: a GPU or link failed when it "
        "started",
        remedy="`fmpm --list-unsupported-partitions`; reset the GPUs that are in none, restart the fabric "
        "manager while nothing runs",
        source=_FM,
        stages=PREPARED,
    ),
    "fabric-modules": Kind(
        cause="the fabric manager's physical ids are not the modules 1 to 8 of the configuration",
        remedy="compare with `nvidia_gpu_tools.py --query-module-name`, and the service VM's devices with "
        "the node's switches",
        source=_WP,
        stages=PREPARED,
    ),
}
