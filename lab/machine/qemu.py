"""A virtual machine as one process of QEMU, all emulated: it ends with the process that started it."""

import contextlib
import ctypes
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lab.tools.cache import cache_root
from lab.tools.debian_packages import unpacked
from lab.tools.model import Report, ToolError, to_stderr

SUITE = "trixie"
"""Debian's release that the machine is, and that QEMU is of: 7.2 of the one before takes twice the time."""
MEMORY_MIB = 8192
NUMA_NODES = 2
GPUS = tuple(f"0000:00:{slot:02x}.0" for slot in range(0x10, 0x18))
"""Devices that say they are H100 GPUs (`lab-devices.sh`); in truth QEMU's `edu`."""
OTHER_DISK = "0000:00:18.0"
"""A second disk; its driver is virtio's."""
_PR_SET_PDEATHSIG = 1
_FIRST_BOOT_SECONDS = 900.0
_POLL_SECONDS = 0.1


class MachineError(Exception):
    """A real machine cannot be had here, or failed; one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Programs:
    """QEMU with all that it needs, down to its C library, in a folder of the cache."""

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """What lets it find its modules."""
        return {"QEMU_MODULE_DIR": f"{self._libraries}/qemu"}

    @property
    def _libraries(self) -> str:
        return f"{self.folder}/usr/lib/x86_64-linux-gnu"

    def words(self, program: str) -> list[str]:
        """How one of its programs is called, with its own libraries and not this machine's."""
        loader = f"{self._libraries}/ld-linux-x86-64.so.2"
        return [loader, "--library-path", self._libraries, f"{self.folder}/usr/bin/{program}"]

    def command(self, disk: str, disk_format: str, *extra: object) -> list[str]:
        """The machine: an IOMMU, two NUMA nodes, eight devices to be GPUs, another disk."""
        share = self.folder / "usr/share"
        gpus = [word for address in GPUS for word in ("-device", f"edu,addr=0x{address[-4:-2]}")]
        half = MEMORY_MIB // NUMA_NODES
        nodes = [
            word
            for node in range(NUMA_NODES)
            for word in (
                *("-object", f"memory-backend-ram,id=m{node},size={half}M"),
                *("-numa", f"node,nodeid={node},memdev=m{node},cpus={node}"),
            )
        ]
        return [
            *(*self.words("qemu-system-x86_64"), "-nodefaults", "-display", "none"),
            *("-L", f"{share}/qemu", "-L", f"{share}/seabios"),
            # One thread: with several, a kernel that patches its own code panics at times.
            *("-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=single"),
            *("-cpu", "max"),
            *("-smp", str(NUMA_NODES), "-m", f"{MEMORY_MIB}M", *nodes),
            *("-device", "intel-iommu,intremap=on", "-device", "virtio-rng-pci"),
            *("-drive", f"file={disk},format={disk_format},if=virtio,cache=unsafe,discard=unmap"),
            *("-drive", "if=none,id=other,driver=null-co,size=64M"),
            *("-device", f"virtio-blk-pci,drive=other,addr=0x{OTHER_DISK[-4:-2]}", *gpus),
            *map(str, extra),
        ]


def programs(report: Report = to_stderr) -> Programs:
    """Fetched from Debian if they are not there yet.

    Raises:
        MachineError: they cannot be had here.
    """
    here = (sys.platform, os.uname().machine)
    if here != ("linux", "x86_64"):
        raise MachineError(
            f"a real machine is made on Linux on x86_64; this is {' on '.join(here)}"
        )
    if os.geteuid() != 0:
        raise MachineError("a real machine is made by root, and this is not root")
    folder = cache_root() / "qemu" / SUITE
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            report("fetching QEMU from Debian's packages")
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                tree = Path(made) / "tree"
                include = "--include=qemu-system-x86,qemu-utils,seabios"
                mmdebstrap(["--variant=extract", include], tree, Path(made) / "log")
                tree.rename(folder)
    return Programs(folder)


def mmdebstrap(options: Sequence[str], root: Path, log: Path) -> None:
    """A file system of Debian's packages, by its own program.

    Raises:
        MachineError: it failed, and its last lines were printed; or it cannot be had here.
    """
    try:
        own = unpacked("mmdebstrap", ["mmdebstrap"])
    except ToolError as error:
        raise MachineError(f"a real machine {error}") from None
    command = [
        # Its mounts of /dev and /proc end with it, and all that it has started, however it ends.
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("env", f"PATH={own}/usr/bin:{os.environ['PATH']}"),
        *("mmdebstrap", "--mode=root", "--format=directory", *options),
        *(SUITE, str(root)),
    ]
    run(command, log)


def run(command: Sequence[str], log: Path) -> None:
    """Run a program to its end; its output goes to a log.

    Raises:
        MachineError: it failed, and its last lines were printed; or it is not here.
    """
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=with_parent,
                check=False,
            )
        except FileNotFoundError:
            raise MachineError(f"{command[0]} is not installed here") from None
    if done.returncode:
        print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
        raise MachineError(f"{command[0]} failed; its last lines are above")


def run_once(programs: Programs, disk: Path, *extra: object) -> str:
    """Boot until the machine switches itself off, its disk changed: what its console said."""
    command = programs.command(str(disk), "raw", "-no-reboot", "-serial", "stdio", *extra)
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **programs.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=with_parent,
            timeout=_FIRST_BOOT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return (late.output or b"").decode(errors="replace")
    return done.stdout.decode(errors="replace")


def with_parent() -> None:
    """A process that gives way to others, and is killed when the one that started it ends in any way."""
    os.nice(5)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def layer(programs: Programs, image: Path) -> IO[bytes]:
    """A disk over an image, without a name, so that a kill leaves nothing of what a machine wrote."""
    with tempfile.TemporaryDirectory(prefix="gpu-clusters-machine-") as folder:
        made = Path(folder) / "layer.qcow2"
        create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image), str(made)]
        subprocess.run([*programs.words("qemu-img"), *create], check=True)
        return made.open("r+b")


class Qemu:
    """One machine that runs, spoken to by QMP; SSH is at `port` of loopback."""

    def __init__(
        self, programs: Programs, disk: IO[bytes], disk_format: str, port: int, *extra: object
    ) -> None:
        self._console: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        files = (disk.fileno(), self._console.fileno())
        forward = f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"
        command = programs.command(
            f"/proc/self/fd/{files[0]}",
            disk_format,
            *("-netdev", forward, "-device", "virtio-net-pci,netdev=net,romfile="),
            *("-qmp", "stdio", "-serial", f"file:/proc/self/fd/{files[1]}", *extra),
        )
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **programs.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._console,
            pass_fds=files,
            preexec_fn=with_parent,
        )
        self._read()
        self.call("qmp_capabilities")

    def call(self, command: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None  # noqa: S101
        line = json.dumps({"execute": command, "arguments": arguments}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        while "return" not in (answer := self._read()):
            if "error" in answer:
                raise MachineError(f"QEMU refuses {command}: {answer['error']['desc']}")
        return answer["return"]

    def _read(self) -> Any:
        assert self.process.stdout is not None  # noqa: S101
        line = self.process.stdout.readline()
        if not line:
            raise MachineError(f"QEMU ended: {self.said()[-600:].strip()!r}")
        return json.loads(line)

    def said(self) -> str:
        return os.pread(self._console.fileno(), 1 << 20, 0).decode(errors="replace")

    def save(self, file: Path) -> None:
        """Stop, and write memory and devices to a file; the disk stays as it is."""
        self.call("stop")
        self.call("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self.call("migrate", uri=f"exec:cat >{shlex.quote(str(file))}")
        while (state := self.call("query-migrate")["status"]) != "completed":
            if state in {"failed", "cancelled"}:
                raise MachineError(f"the machine's memory cannot be saved: {state}")
            time.sleep(_POLL_SECONDS)

    def go_on(self) -> None:
        """From what `save` has written, which it was told to read by `-incoming`."""
        while self.call("query-status")["status"] == "inmigrate":
            time.sleep(_POLL_SECONDS)
        self.call("cont")

    def kill(self) -> None:
        """As if the power was cut."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()
        self._console.close()
