"""What can be wrong with processor, IOMMU, PCI functions, memory, disk and clock of a machine."""

from __future__ import annotations

from collections.abc import Mapping

from gpuclusters.domain.preflight_kind import PREPARED, Kind, Severity

_VFIO = "Linux, Documentation/driver-api/vfio.rst"
_PARAMETERS = "Linux, admin-guide/kernel-parameters.txt"
_SYSFS = "Linux, Documentation/ABI/testing/sysfs-bus-pci"
_KATA_GPU = "NVIDIA GPU Operator, Kata Containers, prerequisites"
_WP = "NVIDIA WP-12736-002, shared NVSwitch passthrough"
_PCI = "PCI Express Base Specification: nobody answers a read, it returns all ones"
_BOOT = "published boot measurements of HGX H100 hosts with Kata"
_HUGE = "Linux, admin-guide/mm/hugetlbpage.rst"

KINDS: Mapping[str, Kind] = {
    # Processor and IOMMU
    "virtualization-off": Kind(
        cause="the processor shows neither vmx nor svm: virtualization is off in the firmware setup",
        remedy="switch on Intel VT-x or AMD SVM in the firmware setup",
        source="Linux, Documentation/virt/kvm/x86",
    ),
    "host-is-virtual": Kind(
        cause="the machine is itself a VM; passing GPUs on to nested VMs is not supported",
        remedy="name the physical machine",
        source=_KATA_GPU,
    ),
    "iommu-firmware-off": Kind(
        cause="the firmware hands over no DMAR (Intel) or IVRS (AMD) table: VT-d or AMD-Vi is off",
        remedy="switch on VT-d or AMD-Vi (IOMMU) in the firmware setup",
        source="Intel VT-d specification §8, AMD I/O Virtualization specification §5",
    ),
    "iommu-off": Kind(
        cause="/sys/kernel/iommu_groups is empty although the kernel was told to use the IOMMU",
        remedy="switch on VT-d or AMD-Vi in the firmware setup, boot with intel_iommu=on (Intel), and "
        "read `dmesg | grep -i -e DMAR -e AMD-Vi`",
        source=_PARAMETERS,
    ),
    "acs-missing": Kind(
        cause="GPUs share an IOMMU group: the bridges above them do not have ACS switched on, so that one "
        "could reach the memory of the other",
        remedy="switch on ACS in the firmware setup (and in the PCIe switches' firmware); do not use "
        "pcie_acs_override, which only hides it",
        source=_VFIO,
    ),
    "foreign-in-group": Kind(
        cause="an IOMMU group of ours holds a device that has a host driver; VFIO gives away a group whole "
        "or not at all",
        remedy="if it belongs to the board, add it to the node's extra-functions; else switch on ACS, or "
        "move the card to another slot",
        source=_VFIO,
    ),
    "memory-controller-left-out": Kind(
        cause="on Supermicro HGX boards the switches share their IOMMU group with the PMC-Sierra function "
        "11f8:4128, which nothing else binds",
        remedy="add its address to the node's extra-functions",
        source=_WP,
    ),
    # Functions
    "function-missing": Kind(
        cause="there is no PCI function at a configured address: a wrong address, or a device that the "
        "firmware did not find",
        remedy="compare with `lspci -Dnn -d 10de:`; if a device is missing there, look into the BMC's log "
        "and switch the machine off and on",
        source=_SYSFS,
    ),
    "wrong-function": Kind(
        cause="another device is at a configured address; binding it would take it from the host",
        remedy="correct the address in the configuration, from `lspci -Dnn`",
        source=_SYSFS,
    ),
    "unlisted-function": Kind(
        cause="the machine has a GPU or switch that the configuration does not list; nobody would take it "
        "from the host, and the fabric manager's table would not fit",
        remedy="add it to the node, or take another platform",
        source=_WP,
    ),
    "off-the-bus": Kind(
        cause="a device does not answer any more (`lspci` shows rev ff or header type 7f)",
        remedy="switch the machine off and on at the BMC (a reboot is not enough); if it comes back, "
        "have the board checked",
        source=_PCI,
    ),
    "bar-size": Kind(
        cause="a memory window of a GPU is not as large as its memory",
        remedy="switch on Above 4G Decoding and raise MMIO High Size in the firmware setup; if the size "
        "still differs, the platform in the configuration is another GPU's",
        source="published `lspci -vv` of the model",
    ),
    "bar-not-placed": Kind(
        cause="the firmware found no address for a memory window of a GPU",
        remedy="switch on Above 4G Decoding and raise MMIO High Size in the firmware setup (eight H100 "
        "take 1 TiB)",
        source=_BOOT,
    ),
    "bar-below-4g": Kind(
        cause="a large memory window lies below 4 GiB: Above 4G Decoding is off",
        remedy="switch on Above 4G Decoding in the firmware setup",
        source=_BOOT,
    ),
    "reset-missing": Kind(
        cause="the kernel knows no way to reset a GPU, so it cannot be cleaned between two tenants",
        remedy="update the firmware of board and GPU; see reset_method in its sysfs folder",
        source=_SYSFS,
        severity=Severity.WARNING,
    ),
    # Memory, disk, clock
    "memory-short": Kind(
        cause="the machine has less memory than the configuration counts on",
        remedy="look for failed modules in the BMC's log, or write the node's memory-gib",
        source="Linux, Documentation/filesystems/proc.rst: MemTotal",
    ),
    "numa-nodes": Kind(
        cause="the machine has another number of NUMA nodes; memory would not lie beside the GPUs",
        remedy="set NUMA nodes per socket (NPS1, SNC off) in the firmware setup",
        source="Linux, Documentation/ABI/stable/sysfs-devices-node",
        severity=Severity.WARNING,
    ),
    "huge-pages-unsupported": Kind(
        cause="the processor has no pages of 1 GiB (pdpe1gb)",
        remedy="leave out hugepages-gib-per-numa-node on this node",
        source=_HUGE,
    ),
    "huge-pages-too-many": Kind(
        cause="a NUMA node has less memory than is to be reserved on it; the machine would not come up",
        remedy="lower hugepages-gib-per-numa-node",
        source=_HUGE,
    ),
    "huge-pages-short": Kind(
        cause="fewer huge pages are reserved than configured: memory was fragmented or short at boot",
        remedy="reboot; if it stays so, lower hugepages-gib-per-numa-node",
        source=_HUGE,
        stages=PREPARED,
    ),
    "disk-short": Kind(
        cause="the root file system has no room for packages and the service VM",
        remedy="make room, for example `journalctl --vacuum-size=200M` and `apt-get clean`",
        source="df(1)",
    ),
    "clock-skew": Kind(
        cause="the machine's clock differs from this one: certificates and tokens would be refused",
        remedy="synchronise it: `timedatectl set-ntp true`, and look at `timedatectl timesync-status`",
        source="RFC 5280 §4.1.2.5 (validity of certificates)",
    ),
}
