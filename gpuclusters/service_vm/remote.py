"""The service VM of a host, through libvirt's `virsh` and QEMU's `qemu-img` there.

All of it runs in `scripts/`, which are sent over SSH; what stays on the host is the
program that systemd starts the VM with.
"""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Mapping, Sequence

from gpuclusters.core import scripts
from gpuclusters.core.errors import (
    CommandFailedError,
    InvalidAnswerError,
)
from gpuclusters.host.script import command_error, explained, facts, last_lines, run_script
from gpuclusters.host.ssh import Completed, SshHost
from gpuclusters.service_vm.cloud_init import Seed
from gpuclusters.service_vm.decide import UNITS, LiveVm, wanted
from gpuclusters.service_vm.health import COMMAND, Guest, parsed_guest
from gpuclusters.service_vm.model import ACCOUNT, STATE_FOLDER, ServiceVmInputs

_UNFINISHED, _OTHER_CHECKSUM, _NO_FILE, _NO_CURL, _DOWNLOAD_FAILED = 10, 11, 12, 13, 14
_STILL_RUNNING = 10
_NO_ISO_TOOL = 20
_NO_KEYS, _NOT_LET_IN = 20, 21
_GUEST_SECONDS = 5
# A checksum of a few GiB, a disk's first write, libvirt's start of a VM whose memory is pinned.
_SLOW_SECONDS = 300


class SshServiceVm:
    """One host and its service VM. Every verb may be repeated: what is done already is fine."""

    def __init__(self, host: SshHost, vm: ServiceVmInputs) -> None:
        self._host = host
        self._vm = vm
        self.target = host.target
        self._files = tuple(wanted(vm, scripts.texts("service_vm")).files)

    def look(self) -> LiveVm:
        """What is there now."""
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
            return parsed(done.stdout)
        except (ValueError, KeyError) as error:
            raise InvalidAnswerError(
                self._host.target,
                f"look at the service VM {vm.name}",
                f"unreadable: {error}",
                "run again",
            ) from error

    def state(self) -> str | None:
        """As `virsh domstate` says."""
        argv = ["virsh", "--connect", "qemu:///system", "domstate", self._vm.name]
        done = self._host.run(argv, tried="ask for the VM's state", repeatable=True)
        words = done.stdout.decode(errors="replace").split("\n", 1)[0].strip()
        return words if done.status == 0 else None

    def ask_guest(self) -> Guest:
        """What the VM says of itself; that it cannot be asked is an answer too."""
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
        """Get and verify the image for so long."""
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
        raise CommandFailedError(self._host.target, tried, problem, remedy)

    def install(self, files: Mapping[str, str], executable: frozenset[str]) -> None:
        """Write the host's own files, and let systemd start the VM at boot."""
        tar = _tar(files, {path: 0o755 if path in executable else 0o644 for path in files})
        self._run("install", UNITS, "install the units of the service VM", content=tar)

    def write_seed(self, seed: Seed) -> None:
        """Make the seed."""
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
                self._host.target,
                tried,
                "neither genisoimage, mkisofs nor xorriso is installed",
                "install the package genisoimage (or xorriso) on the host",
            )

    def define_network(self, xml: str) -> None:
        """Define the network anew and start it."""
        name = self._vm.network.name
        self._run("define", ["network", name], f"define the network {name}", content=xml.encode())

    def make_disk(self) -> None:
        """Make the VM's disk."""
        vm = self._vm
        self._run("disk", [vm.disk, vm.image.file, str(vm.disk_gib)], f"make the disk {vm.disk}")

    def define_domain(self, xml: str) -> None:
        """Define the domain."""
        name = self._vm.name
        self._run("define", ["domain", name], f"define the service VM {name}", content=xml.encode())

    def start(self) -> None:
        """Start the VM."""
        self._run("power", ["start", self._vm.name], f"start the service VM {self._vm.name}")

    def shut_down(self, seconds: int) -> bool:
        """Ask the VM to shut down and wait; whether it did."""
        done = self._run(
            "power",
            ["shutdown", self._vm.name, str(seconds)],
            f"shut down the service VM {self._vm.name}",
            accept=(0, _STILL_RUNNING),
        )
        return done.status == 0

    def power_off(self) -> None:
        """Take the VM's power."""
        self._run("power", ["off", self._vm.name], f"switch off the service VM {self._vm.name}")

    def remove(self, *, network: bool) -> None:
        """Remove the VM and all that belongs to it."""
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
                f"service_vm/{script}",
                list(arguments),
                tried=tried,
                content=content,
                repeatable=repeatable,
                accept=accept,
                timeout_seconds=_SLOW_SECONDS,
            )
        except CommandFailedError as error:
            raise explained(error, "service-vm") from error


def _tar(files: Mapping[str, str], modes: Mapping[str, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size = len(text.encode())
            entry.mode = (modes or {}).get(name, 0o600)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def parsed(output: bytes) -> LiveVm:
    """The answer of `inspect.sh`.

    Raises:
        ValueError: it is none.
    """
    said = facts(output)
    if "boot" not in said:
        raise ValueError("the host did not say its boot id")

    def last(key: str, default: str = "") -> str:
        return said.get(key, [default])[-1]

    def decoded(key: str) -> str | None:
        return base64.b64decode(last(key)).decode(errors="replace") if key in said else None

    problem = decoded("problem")
    files = (value.partition(" ") for value in said.get("file", ()))
    return LiveVm(
        problem=None if problem is None else last_lines(problem),
        boot_id=last("boot"),
        network=decoded("network"),
        network_active=last("network-active") == "yes",
        network_autostart=last("network-autostart") == "yes",
        domain=decoded("domain"),
        running_domain=decoded("running"),
        state=last("state") or None,
        number=last("number", "-"),
        autostart=last("autostart") == "enable",
        backing=last("backing").removeprefix("-") if "backing" in said else None,
        seed=last("seed") or None,
        image_verified=last("image") == "verified",
        files={path: digest for digest, _, path in files},
        disabled=tuple(said.get("disabled", ())),
        stale="stale" in said,
        console=decoded("console") or "",
        host_key=(decoded("hostkey") or "").strip(),
    )
