"""NVIDIA's driver on a host over SSH, by the scripts in `scripts/driver`."""

from __future__ import annotations

from collections.abc import Sequence

from gpuclusters.adapters.errors import CommandFailedError
from gpuclusters.adapters.node_files import SshNodeFiles
from gpuclusters.adapters.scripts import explained, run_script
from gpuclusters.adapters.ssh import Completed, SshHost
from gpuclusters.boot.decide import BootMethod
from gpuclusters.boot.host import reboot, update
from gpuclusters.core.converge import Clock
from gpuclusters.domain import gpu_driver
from gpuclusters.domain.gpu_driver import LiveDriver
from gpuclusters.domain.gpu_driver_packages import Packages

# A gigabyte over a slow mirror, and modules that are built for several kernels.
INSTALL_SECONDS = 2400.0
_FILES = (gpu_driver.NOUVEAU_FILE, gpu_driver.UPGRADES_FILE)
_MODE, _OWNER = "0644", "root:root"


class SshDriverHost:
    """`DriverHost` of the domain."""

    def __init__(self, host: SshHost, clock: Clock) -> None:
        self._host = host
        self._files = SshNodeFiles(host)
        self._clock = clock

    @property
    def place(self) -> str:
        """Name, address and port."""
        return self._host.place

    def inspect(self) -> LiveDriver:
        """What is there."""
        done = self._run("inspect", _FILES, "look at the driver", repeatable=True)
        return gpu_driver.parse_live(done.stdout.decode(errors="replace"))

    def write(self, path: str, content: str) -> None:
        """Write a file."""
        self._files.write(path, content.encode(), mode=_MODE, owner=_OWNER)

    def remove_file(self, path: str) -> None:
        """Remove a file; absent is fine."""
        self._files.remove(path)

    def build_initramfs(self, family: str, digest: str) -> None:
        """For all kernels; the note is made when it is done."""
        method = BootMethod.GRUB_FOLDER if family == "debian" else BootMethod.GRUBBY
        update(self._host, method, initramfs=digest, stamp=f"{gpu_driver.STATE}/initramfs")

    def install(self, family: str, packages: Packages) -> None:
        """Exactly these versions."""
        wanted = [f"{name}={version}" for name, version in packages.wanted]
        self._run(
            "install",
            [family, packages.stream or "none", *wanted],
            f"install {', '.join(packages.names)}",
            timeout_seconds=INSTALL_SECONDS,
        )

    def hold(self, family: str, names: Sequence[str]) -> None:
        """Keep packages from being upgraded by themselves."""
        self._run("hold", [family, *names], f"hold {', '.join(names)}", timeout_seconds=300.0)

    def uninstall(self, family: str) -> None:
        """Remove what was brought."""
        self._run("uninstall", [family], "uninstall the driver", timeout_seconds=INSTALL_SECONDS)

    def reboot(self, boot_id: str, timeout_seconds: int) -> None:
        """Back when the host answers with another boot id."""
        reboot(self._host, self._clock, boot_id, timeout_seconds)

    def load(self) -> None:
        """Load the module."""
        self._run("load", [], "load the module nvidia", timeout_seconds=300.0)

    def start_fabric_manager(self) -> None:
        """Enable it, and start it anew: the one that runs may be of the driver before."""
        unit = gpu_driver.FABRIC_MANAGER
        self._explained(
            "unit",
            ["apply", unit, "enabled", "active", "restart"],
            f"start {unit}",
            timeout_seconds=300.0,
        )

    def finish(self, digest: str) -> None:
        """Note that the driver is as it must be."""
        self._run("finish", [digest], "mark the host")

    def _run(
        self,
        name: str,
        arguments: Sequence[str],
        tried: str,
        *,
        repeatable: bool = False,
        timeout_seconds: float | None = None,
    ) -> Completed:
        return self._explained(
            f"driver/{name}",
            arguments,
            tried,
            repeatable=repeatable,
            timeout_seconds=timeout_seconds,
        )

    def _explained(
        self,
        script: str,
        arguments: Sequence[str],
        tried: str,
        *,
        repeatable: bool = False,
        timeout_seconds: float | None = None,
    ) -> Completed:
        """Run a script; a failure that is known says what to do about it."""
        try:
            return run_script(
                self._host,
                script,
                arguments,
                tried=tried,
                repeatable=repeatable,
                timeout_seconds=timeout_seconds,
            )
        except CommandFailedError as error:
            raise explained(error, "driver") from error
