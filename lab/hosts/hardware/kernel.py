"""What the kernel of a simulated host does: finds devices at boot, loads modules, binds drivers.

Sources: the kernel's `Documentation/ABI/testing/sysfs-bus-pci` (`bind`, `unbind`, `new_id`,
`driver_override`, `drivers_probe`) and `Documentation/driver-api/vfio.rst` (groups, /dev/vfio).
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from lab.hosts.faults import DeviceRefusesUnbind, Faults
from lab.hosts.faults import read as faults_of
from lab.hosts.hardware import command_line, memory_pages, sysfs
from lab.hosts.hardware.board import PciDevice
from lab.hosts.hardware.sysfs import link, write_line
from lab.hosts.machine import Machine
from lab.hosts.nvidia import driver as nvidia

LIB = "/usr/local/lib/lab-host"
MODULES = f"{LIB}/proc/modules"
COMMAND_LINE = f"{LIB}/proc/cmdline"
VFIO, NOUVEAU, NVIDIA = "vfio-pci", "nouveau", "nvidia"
_DRIVER_OF: Mapping[str, str] = {"vfio_pci": VFIO, "nouveau": NOUVEAU, "nvidia": NVIDIA}
"""The driver that a module brings along."""
_DEVICES, _DRIVERS = "/sys/bus/pci/devices", "/sys/bus/pci/drivers"
_NO_OVERRIDE = "(null)"
_NEEDS: Mapping[str, tuple[str, ...]] = {"vfio_pci": ("vfio", "vfio_iommu_type1")}


class Kernel:
    """The kernel of one host, as far as its files show it."""

    def __init__(self, machine: Machine, *, device_nodes: bool) -> None:
        self._machine = machine
        self._device_nodes = device_nodes

    @property
    def command_line(self) -> str:
        return (self._machine.read_text(COMMAND_LINE) or "").strip()

    @property
    def has_iommu(self) -> bool:
        return command_line.has_iommu(self.command_line)

    def boot(self, line: str, blacklisted: frozenset[str]) -> None:
        """Start with this command line.

        `blacklisted`: modules that files in the initramfs keep from loading by themselves.
        """
        machine = self._machine
        machine.path(COMMAND_LINE).write_text(f"{line}\n")
        machine.path(MODULES).write_text("")
        machine.state.pop("vfio_ids", None)
        shutil.rmtree(machine.path("/sys/module"), ignore_errors=True)
        machine.path("/sys/module").mkdir()
        for device in machine.board.devices:
            self._detach(device)
            (self._folder(device) / "driver_override").write_text(f"{_NO_OVERRIDE}\n")
        nvidia.gone(machine)
        for name in (VFIO, NOUVEAU, NVIDIA):
            shutil.rmtree(machine.path(f"{_DRIVERS}/{name}"), ignore_errors=True)
        self._groups()
        self._nodes()
        memory_pages.reserve(machine, line)
        if not {NOUVEAU} & (blacklisted | self.blocked):
            self.load(NOUVEAU)
        for device in machine.board.devices:
            self._probe(device)
        blacklisted |= self.blocked
        if machine.board.runs_the_driver and not {NVIDIA} & blacklisted:
            faults = faults_of(machine.folder)
            if nvidia.refusal(machine, faults, nouveau=self.is_loaded(NOUVEAU)) is None:
                self.load(NVIDIA)

    def is_loaded(self, module: str) -> bool:
        return (self._machine.path("/sys/module") / module.replace("-", "_") / "initstate").exists()

    @property
    def blocked(self) -> frozenset[str]:
        """Modules that the command line forbids to load at all, or by themselves."""
        line = self.command_line
        return command_line.forbidden_modules(line) | command_line.blacklisted_modules(line)

    def refuses(self, module: str) -> bool:
        """Whether `module_blacklist=` forbids this module even to root."""
        return module in command_line.forbidden_modules(self.command_line)

    def load(self, module: str) -> None:
        """Load a module and those that it needs; its driver takes what is its own."""
        name = module.replace("-", "_")
        if (self._machine.path("/sys/module") / name / "initstate").exists():
            return
        for needed in (*_NEEDS.get(name, ()), name):
            self._list(needed, loaded=True)
        if name == "vfio_pci":
            write_line(self._machine.path("/sys/module/vfio_pci/parameters/disable_idle_d3"), "N")
        if name == NVIDIA:
            nvidia.took_over(self._machine)
        driver = _DRIVER_OF.get(name)
        if driver is None:
            self._nodes()
            return
        folder = self._machine.path(f"{_DRIVERS}/{driver}")
        for file in ("bind", "unbind", "new_id", "remove_id"):
            if not (folder / file).exists():
                write_line(folder / file, "", mode=0o200)
        for device in self._machine.board.devices:
            self._probe(device)
        self._nodes()

    def unload(self, module: str) -> None:
        """Take a module out; what was bound to its driver is free."""
        name = module.replace("-", "_")
        driver = _DRIVER_OF.get(name)
        for device in self._machine.board.devices:
            if driver is not None and self.driver_of(device) == driver:
                self._detach(device)
        if driver is not None:
            shutil.rmtree(self._machine.path(f"{_DRIVERS}/{driver}"), ignore_errors=True)
        if name == NVIDIA:
            nvidia.gone(self._machine)
        self._list(name, loaded=False)
        self._nodes()

    def driver_of(self, device: PciDevice) -> str | None:
        link = self._folder(device) / "driver"
        return link.readlink().name if link.is_symlink() else None

    def watched(self) -> Iterator[Path]:
        """The folders in which a write has an effect."""
        yield self._machine.path("/sys/bus/pci")
        yield from (self._folder(device) for device in self._machine.board.devices)
        drivers = self._machine.path(_DRIVERS)
        yield from (folder for folder in drivers.iterdir() if folder.is_dir())
        yield from (folder for _, folder in memory_pages.folders(self._machine))

    def written(self, path: Path, faults: Faults) -> None:
        """Do what a write to this file of sysfs asks for."""
        try:
            content = path.read_text(errors="replace").strip()
        except OSError:
            return
        if path.name == "driver_override":
            if not content:
                path.write_text(f"{_NO_OVERRIDE}\n")
            return
        if path.name == "nr_hugepages" and content.isdecimal():
            memory_pages.set_pages(self._machine, path.parent, int(content))
            return
        if not content or path.name not in {"bind", "unbind", "drivers_probe", "new_id"}:
            return
        path.write_text("")
        if path.name == "new_id":
            words = content.split()
            if len(words) >= 2:
                self._ids().append(f"{words[0]}:{words[1]}")
                self._probe_all()
            return
        device = next((d for d in self._machine.board.devices if d.address == content), None)
        if device is None:
            return
        driver = path.parent.name
        if path.name == "drivers_probe":
            self._probe(device)
        elif path.name == "bind" and self.driver_of(device) is None:
            if self._takes(driver, device):
                self._attach(device, driver)
        elif path.name == "unbind" and self.driver_of(device) == driver:
            held = any(f.address == device.address for f in faults.all(DeviceRefusesUnbind))
            if not held and not self._is_in_use(device):
                self._detach(device)
        self._nodes()
        self._machine.note("driver", address=device.address, driver=self.driver_of(device))

    def _is_in_use(self, device: PciDevice) -> bool:
        return any(
            device.iommu_group in self._machine.board.vfio_groups(partition)
            for partition in self._machine.partitions_in_use()
        )

    def _folder(self, device: PciDevice) -> Path:
        return self._machine.path(f"{_DEVICES}/{device.address}")

    def _ids(self) -> list[str]:
        ids: list[str] = self._machine.state.setdefault("vfio_ids", [])
        return ids

    def _override(self, device: PciDevice) -> str | None:
        said = (self._folder(device) / "driver_override").read_text().strip()
        return None if said in {"", _NO_OVERRIDE} else said

    def _takes(self, driver: str, device: PciDevice) -> bool:
        """Whether a driver would accept a device."""
        override = self._override(device)
        if driver == VFIO and not self.has_iommu:
            return False  # probe of vfio-pci fails with error -22
        if override is not None:
            return override == driver
        if driver == VFIO:
            ids = [*self._ids(), *command_line.vfio_ids(self.command_line)]
            return f"{device.vendor}:{device.device}" in ids
        if driver == NOUVEAU:
            return device.module is not None
        if driver == NVIDIA:
            return device.vendor == "10de" and nvidia.loaded(self._machine) is not None
        return driver == _native(device)

    def _probe_all(self) -> None:
        for device in self._machine.board.devices:
            self._probe(device)
        self._nodes()

    def _probe(self, device: PciDevice) -> None:
        """Offer a device without a driver to those that are there."""
        if self.driver_of(device) is not None:
            return
        drivers = self._machine.path(_DRIVERS)
        for name in dict.fromkeys([VFIO, NOUVEAU, NVIDIA, _native(device) or VFIO]):
            if (drivers / name).is_dir() and self._takes(name, device):
                self._attach(device, name)
                return

    def _attach(self, device: PciDevice, driver: str) -> None:
        here, there = self._folder(device), self._machine.path(f"{_DRIVERS}/{driver}")
        link(here / "driver", there)
        link(there / device.address, here)
        (here / "enable").write_text("0\n" if driver == VFIO else "1\n")
        if driver == NOUVEAU:
            (here / "drm" / graphics_node(device)).mkdir(parents=True, exist_ok=True)
            node = self._machine.path(f"/dev/dri/{graphics_node(device)}")
            node.parent.mkdir(exist_ok=True)
            node.touch()

    def _detach(self, device: PciDevice) -> None:
        driver = self.driver_of(device)
        if driver is not None:
            self._machine.path(f"{_DRIVERS}/{driver}").joinpath(device.address).unlink(
                missing_ok=True
            )
            (self._folder(device) / "driver").unlink(missing_ok=True)
        (self._folder(device) / "enable").write_text("0\n")
        if device.module is not None:
            shutil.rmtree(self._folder(device) / "drm", ignore_errors=True)
            self._machine.path(f"/dev/dri/{graphics_node(device)}").unlink(missing_ok=True)

    def _groups(self) -> None:
        """IOMMU groups are there with an IOMMU, and none without."""
        machine = self._machine
        for device in machine.board.devices:
            here = self._folder(device)
            group = machine.path(f"/sys/kernel/iommu_groups/{device.iommu_group}")
            if self.has_iommu:
                if not group.exists():
                    write_line(group / "type", "DMA-FQ")
                    (group / "devices").mkdir()
                link(group / "devices" / device.address, here)
                link(here / "iommu_group", group)
            else:
                (here / "iommu_group").unlink(missing_ok=True)
        if not self.has_iommu:
            shutil.rmtree(machine.path("/sys/kernel/iommu_groups"), ignore_errors=True)
        machine.path("/sys/kernel/iommu_groups").mkdir(parents=True, exist_ok=True)

    def _nodes(self) -> None:
        """/dev/vfio has a node for each group with a device on vfio-pci."""
        ready = self.has_iommu and self._machine.path("/sys/module/vfio").is_dir()
        bound = {d.iommu_group for d in self._machine.board.devices if self.driver_of(d) == VFIO}
        groups = sorted({device.iommu_group for device in self._machine.board.devices})
        nodes = [groups.index(group) for group in sorted(bound)] if ready else []
        folder = self._machine.path("/dev/vfio")
        sysfs.make_vfio_nodes(
            folder, {groups[n]: n for n in nodes}, device_nodes=self._device_nodes
        )

    def _list(self, name: str, *, loaded: bool) -> None:
        listing = self._machine.path(MODULES)
        rest = [line for line in listing.read_text().splitlines() if line.split()[0] != name]
        if loaded:
            rest.insert(0, f"{name} 16384 0 - Live 0x0000000000000000")
        listing.write_text("".join(f"{line}\n" for line in rest))
        folder = self._machine.path(f"/sys/module/{name}")
        if loaded:
            write_line(folder / "initstate", "live")
            write_line(folder / "refcnt", "0")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _native(device: PciDevice) -> str | None:
    """The driver that takes a device on a machine with nothing installed."""
    return None if device.driver == VFIO else device.driver


def graphics_node(device: PciDevice) -> str:
    """What a graphics driver calls a GPU below /dev/dri; 0 is the console of the machine's BMC."""
    return f"card{device.module}"
