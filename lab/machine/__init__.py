"""Real machines for tests: Debian with its own kernel, systemd, GRUB, IOMMU, vfio-pci and sshd under QEMU.

Simulated hosts (`lab.hosts`) play what a machine does; these do it. They are slow (all is emulated), and need
Linux with root, apt and some GB of the cache.
"""

from lab.machine.machine import Machine
from lab.machine.qemu import MachineError

__all__ = ["Machine", "MachineError"]
