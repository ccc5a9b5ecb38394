"""A real machine as it is after its boot: Debian, kept in the cache by the digest of its recipe."""

import asyncio
import fcntl
import hashlib
import shutil
import socket
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from lab.hosts.model import ADDRESS, USER
from lab.machine.qemu import SUITE, MachineError, Programs, Qemu, mmdebstrap, run, run_once
from lab.tools.cache import cache_root
from lab.tools.model import Report, to_stderr

PACKAGES = (
    # What makes it a machine: kernel, boot loader, systemd with users' managers, SSH.
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "zstd",
    "grub-pc",
    "systemd-sysv",
    "libpam-systemd",
    "dbus-user-session",
    "udev",
    "openssh-server",
    "sudo",
    "kmod",
    "procps",
    "iproute2",
    "pciutils",
    "curl",
    "ca-certificates",
    "gpg",
    "iptables",
    "unattended-upgrades",
    # What the preparation of hosts asks for.
    "psmisc",
    "libvirt-daemon-system",
    "libvirt-clients",
    "qemu-system-x86",
    "qemu-utils",
    "ovmf",
    "genisoimage",
    # A small guest that boots with UEFI: GRUB itself.
    "grub-efi-amd64-bin",
    "dosfstools",
    "mtools",
    # Rootless containers, by a daemon that knows CDI.
    "docker.io",
    "docker-cli",
    "docker-compose",
    "rootlesskit",
    "slirp4netns",
    "fuse-overlayfs",
    "uidmap",
    "jq",
)
DISK_BYTES = 8 << 30
_FIRST_SECTOR = 2048
_SECTOR_BYTES = 512
_LINUX = 0x83
_BOOT_SECONDS = 900.0
_FOLDER = Path(__file__).parent
_IN_ROOT = ("set_up.sh", "first_boot.sh", "lab-devices.sh", "lab-devices.service", "virsh")
_NO_DOCUMENTS = ("doc", "man", "locale", "info")


@dataclass(frozen=True, slots=True)
class Image:
    """A finished image; nothing in its folder is ever written again."""

    folder: Path

    @property
    def disk(self) -> Path:
        """Raw, with a boot sector and one file system."""
        return self.folder / "disk.raw"

    @property
    def memory(self) -> Path:
        """What the booted machine had in memory."""
        return self.folder / "memory"

    @property
    def client_key(self) -> Path:
        """Private key that the account `operator` lets in."""
        return self.folder / "id_ed25519"

    @property
    def host_key(self) -> str:
        """The machine's own public key: type and key."""
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])


def digest(programs: Programs) -> str:
    """Of all that decides what the machine is."""
    parts = [
        SUITE,
        str(DISK_BYTES),
        *PACKAGES,
        *Programs(Path(programs.folder.name)).command("disk", "raw"),
    ]
    parts += [(_FOLDER / name).read_text() for name in _IN_ROOT]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def image(programs: Programs, report: Report = to_stderr) -> Image:
    """The image of this recipe; made now if there is none, which takes some minutes.

    Raises:
        MachineError: it cannot be made here; one sentence that says why.
    """
    folder = cache_root() / "machines" / digest(programs)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for old in folder.parent.glob("[!.]*"):
                shutil.rmtree(old)  # of another recipe, or cut off
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                _make(Path(made) / "image", programs, report)
                (Path(made) / "image").rename(folder)
    return Image(folder)


def _make(folder: Path, programs: Programs, report: Report) -> None:
    folder.mkdir()
    root = folder / "root"
    report("making a real machine from Debian's packages")
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(folder / "id_ed25519")
    (folder / "id_ed25519").chmod(0o600)
    options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _NO_DOCUMENTS]
    hooks = [f"--customize-hook=copy-in {_FOLDER / name} /usr/local/sbin" for name in _IN_ROOT]
    set_up = f'--customize-hook=chroot "$1" sh /usr/local/sbin/{_IN_ROOT[0]} "{_public(key)}"'
    options += ["--variant=minbase", "--dpkgopt=force-unsafe-io", *hooks, set_up]
    mmdebstrap([*options, f"--include={','.join(PACKAGES)}"], root, folder / "mmdebstrap.log")
    shutil.copy(root / "etc/ssh/ssh_host_ed25519_key.pub", folder / "host_key.pub")
    _write_disk(folder, root, programs, report)
    shutil.rmtree(root)
    report("booting it")
    _boot(Image(folder), programs)


def _write_disk(folder: Path, root: Path, programs: Programs, report: Report) -> None:
    disk = folder / "disk.raw"
    with disk.open("wb") as out:
        out.truncate(DISK_BYTES)
        out.seek(446)  # the table of partitions in the boot sector: one, for Linux, to the end
        sectors = DISK_BYTES // _SECTOR_BYTES - _FIRST_SECTOR
        out.write(
            struct.pack("<B3sB3sII", 0x80, b"\0" * 3, _LINUX, b"\0" * 3, _FIRST_SECTOR, sectors)
        )
        out.seek(510)
        out.write(b"\x55\xaa")
    offset = _FIRST_SECTOR * _SECTOR_BYTES
    size = f"{(DISK_BYTES - offset) // 1024}k"
    options = ["-E", f"offset={offset},lazy_itable_init=1,nodiscard", "-d", str(root)]
    run(["mke2fs", "-q", "-F", "-t", "ext4", *options, str(disk), size], folder / "mke2fs.log")
    (kernel,), (initrd,) = root.glob("boot/vmlinuz-*"), root.glob("boot/initrd.img-*")
    report("installing its boot loader, on itself")
    line = "root=/dev/vda1 rw console=ttyS0 quiet init=/usr/local/sbin/first_boot.sh"
    said = run_once(programs, disk, "-kernel", kernel, "-initrd", initrd, "-append", line)
    if "lab: the boot loader is installed" not in said:
        raise MachineError(f"the machine's first boot failed: {said[-600:].strip()!r}")


def _boot(made: Image, programs: Programs) -> None:
    """Boot from its disk, and keep what it is then in memory: each machine begins there."""
    port = free_port()
    with made.disk.open("r+b") as disk:
        machine = Qemu(programs, disk, "raw", port)
        try:
            said = asyncio.run(_first_answer(made, port))
            if said != "running":
                raise MachineError(f"the machine is {said}; {machine.said()[-600:]!r}")
            machine.save(made.memory)
        finally:
            machine.kill()


async def _first_answer(made: Image, port: int) -> str:
    deadline = time.monotonic() + _BOOT_SECONDS
    while True:
        try:
            async with asyncssh.connect(
                ADDRESS,
                port,
                username=USER,
                client_keys=[str(made.client_key)],
                known_hosts=asyncssh.import_known_hosts(f"[{ADDRESS}]:{port} {made.host_key}"),
                config=None,
                connect_timeout=_BOOT_SECONDS,
            ) as link:
                done = await link.run("systemctl is-system-running --wait; sync")
                return str(done.stdout).strip()
        except (OSError, asyncssh.Error):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(1)


def free_port() -> int:
    with socket.socket() as free:
        free.bind((ADDRESS, 0))
        return int(free.getsockname()[1])


def _public(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()
