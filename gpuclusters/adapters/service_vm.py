"""The service VM of a host, through libvirt's `virsh` and QEMU's `qemu-img` there.

All of it runs in scripts of `scripts/service-vm`, which are sent over SSH; what stays on the host is the
program that systemd starts the VM with.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from gpuclusters.adapters.errors import (
    CommandFailedError,
    InvalidAnswerError,
)
from gpuclusters.adapters.scripts import command_error, last_lines, run_script
from gpuclusters.adapters.service_vm_answers import parsed, with_remedy
from gpuclusters.adapters.ssh import Completed, SshHost
from gpuclusters.domain.cloud_init import Seed
from gpuclusters.domain.service_vm import ACCOUNT, STATE_FOLDER, ServiceVmInputs
from gpuclusters.domain.service_vm_guest import COMMAND, Guest
from gpuclusters.domain.service_vm_guest import parsed as parsed_guest
from gpuclusters.domain.service_vm_state import UNITS, LiveVm, wanted

FOLDER = Path(__file__).resolve().parents[2] / "scripts" / "service-vm"

_UNFINISHED, _OTHER_CHECKSUM, _NO_FILE, _NO_CURL, _DOWNLOAD_FAILED = 10, 11, 12, 13, 14
_STILL_RUNNING = 10
_NO_ISO_TOOL = 20
_NO_KEYS, _NOT_LET_IN = 20, 21
_GUEST_SECONDS = 5
# A checksum of a few GiB, a disk's first write, libvirt's start of a VM whose memory is pinned.
_SLOW_SECONDS = 300


class SshServiceVm:
    """`ServiceVmHost` of one host."""

    def __init__(self, host: SshHost, vm: ServiceVmInputs) -> None:
        self._host = host
        self._vm = vm
        self._files = tuple(wanted(vm, scripts()).files)

    @property
    def place(self) -> str:
        """Name, address and port of the host."""
        return self._host.place

    def look(self) -> LiveVm:
        """What is there now.

        Raises:
            AdapterError: not reached, or the answer cannot be read.
        """
        vm = self._vm
        done = self._run(
            "inspect",
            [
                vm.name,
                vm.network.name,
                vm.disk,
                vm.seed,
                vm.image.file,
                vm.image.sha256,
                STATE_FOLDER,
                vm.console,
                " ".join(self._files),
                " ".join(UNITS),
            ],
            f"look at the service VM {vm.name}",
            repeatable=True,
        )
        try:
            return parsed(done.stdout.decode())
        except ValueError as error:
            raise InvalidAnswerError(
                self.place, f"look at the service VM {vm.name}", f"unreadable: {error}", "run again"
            ) from error

    def state(self) -> str | None:
        """As `virsh domstate` says.

        Raises:
            AdapterError: not reached.
        """
        argv = ["virsh", "--connect", "qemu:///system", "domstate", self._vm.name]
        done = self._host.run(argv, tried="ask for the VM's state", repeatable=True)
        words = done.stdout.decode(errors="replace").split("\n", 1)[0].strip()
        return words if done.status == 0 else None

    def ask_guest(self) -> Guest:
        """What the VM says of itself; that it cannot be asked is an answer too.

        Raises:
            AdapterError: the host was not reached.
        """
        vm = self._vm
        done = self._run(
            "guest",
            [
                vm.name,
                vm.fabric_manager.bind_address,
                STATE_FOLDER,
                ACCOUNT,
                str(_GUEST_SECONDS),
                COMMAND,
            ],
            f"ask the service VM {vm.name} over SSH",
            repeatable=True,
            accept=(0, _NO_KEYS, _NOT_LET_IN),
        )
        if done.status != 0:
            return Guest(last_lines(done.stderr) or "ssh ended without a word")
        return parsed_guest(done.stdout.decode(errors="replace"))

    def fetch_image(self, seconds: int) -> str | None:
        """Get and verify the image for so long.

        Raises:
            AdapterError: another checksum, no such file, or the download failed; nothing was used.
        """
        image = self._vm.image
        tried = f"get the image {image.path or image.url}"
        done = self._run(
            "fetch_image",
            [image.file, image.url or "-", image.sha256, STATE_FOLDER, str(seconds)],
            tried,
            accept=(0, _UNFINISHED, _OTHER_CHECKSUM, _NO_FILE, _NO_CURL, _DOWNLOAD_FAILED),
        )
        words = done.stdout.decode(errors="replace").strip()
        if done.status == 0:
            return None
        if done.status == _UNFINISHED:
            return f"{words} bytes so far"
        problem, remedy = {
            _OTHER_CHECKSUM: (
                f"its sha256 is {words}, not {image.sha256}",
                "use the image that was meant, or write its checksum as image.sha256 after you have "
                "checked where it comes from",
            ),
            _NO_FILE: (
                f"there is no file {image.path}",
                "copy the image there, or write a url instead of a path",
            ),
            _NO_CURL: ("curl is not installed", "install the package curl on the host"),
            _DOWNLOAD_FAILED: (
                last_lines(done.stderr),
                "check the address and the host's way to it; the download goes on where it ended",
            ),
        }[done.status]
        if "No space left" in problem or "Failed writing body" in problem:
            raise command_error(self._host, tried, done)
        raise CommandFailedError(self.place, tried, problem, remedy)

    def install(self, files: Mapping[str, str], executable: frozenset[str]) -> None:
        """Write the host's own files, and let systemd start the VM at boot.

        Raises:
            AdapterError: not reached, no space, or systemd refuses.
        """
        tar = _tar(files, {path: 0o755 if path in executable else 0o644 for path in files})
        self._run("install", UNITS, "install the units of the service VM", content=tar)

    def write_seed(self, seed: Seed) -> None:
        """Make the seed.

        Raises:
            AdapterError: not reached, no tool for ISO images, no space.
        """
        vm = self._vm
        tried = f"make the seed {vm.seed}"
        done = self._run(
            "seed",
            [vm.name, vm.seed, seed.digest, STATE_FOLDER, ACCOUNT],
            tried,
            content=_tar(seed.files),
            accept=(0, _NO_ISO_TOOL),
        )
        if done.status == _NO_ISO_TOOL:
            raise CommandFailedError(
                self.place,
                tried,
                "neither genisoimage, mkisofs nor xorriso is installed",
                "install the package genisoimage (or xorriso) on the host",
            )

    def define_network(self, xml: str) -> None:
        """Define the network anew and start it.

        Raises:
            AdapterError: not reached, or libvirt refuses.
        """
        name = self._vm.network.name
        self._run("define", ["network", name], f"define the network {name}", content=xml.encode())

    def make_disk(self) -> None:
        """Make the VM's disk.

        Raises:
            AdapterError: not reached, no space, or qemu-img refuses.
        """
        vm = self._vm
        self._run("disk", [vm.disk, vm.image.file, str(vm.disk_gib)], f"make the disk {vm.disk}")

    def define_domain(self, xml: str) -> None:
        """Define the domain.

        Raises:
            AdapterError: not reached, or libvirt refuses.
        """
        name = self._vm.name
        self._run("define", ["domain", name], f"define the service VM {name}", content=xml.encode())

    def start(self) -> None:
        """Start the VM.

        Raises:
            AdapterError: not reached, or libvirt refuses: devices not on vfio-pci, as a rule.
        """
        self._run("power", ["start", self._vm.name], f"start the service VM {self._vm.name}")

    def shut_down(self, seconds: int) -> bool:
        """Ask the VM to shut down and wait; whether it did.

        Raises:
            AdapterError: not reached.
        """
        done = self._run(
            "power",
            ["shutdown", self._vm.name, str(seconds)],
            f"shut down the service VM {self._vm.name}",
            accept=(0, _STILL_RUNNING),
        )
        return done.status == 0

    def power_off(self) -> None:
        """Take the VM's power.

        Raises:
            AdapterError: not reached, or libvirt refuses.
        """
        self._run("power", ["off", self._vm.name], f"switch off the service VM {self._vm.name}")

    def remove(self, *, network: bool) -> None:
        """Remove the VM and all that belongs to it.

        Raises:
            AdapterError: not reached, or libvirt refuses.
        """
        vm = self._vm
        self._run(
            "remove",
            [
                vm.name,
                vm.network.name if network else "-",
                vm.disk,
                vm.seed,
                STATE_FOLDER,
                vm.console,
                " ".join(self._files),
                " ".join(UNITS),
            ],
            f"remove the service VM {vm.name}",
        )

    def _run(
        self,
        script: str,
        arguments: Sequence[str],
        tried: str,
        *,
        content: bytes | None = None,
        repeatable: bool = False,
        accept: Sequence[int] = (0,),
    ) -> Completed:
        try:
            return run_script(
                self._host,
                f"service-vm/{script}",
                list(arguments),
                tried=tried,
                content=content,
                repeatable=repeatable,
                accept=accept,
                timeout_seconds=_SLOW_SECONDS,
            )
        except CommandFailedError as error:
            raise with_remedy(error) from error


@cache
def scripts() -> Mapping[str, str]:
    """Text of the files of `scripts/service-vm` by name."""
    return {path.name: path.read_text() for path in FOLDER.iterdir() if path.is_file()}


def _tar(files: Mapping[str, str], modes: Mapping[str, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size = len(text.encode())
            entry.mode = (modes or {}).get(name, 0o600)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()
