"""NVIDIA's driver on a host over SSH, by the scripts in `gpuclusters/driver/scripts`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from gpuclusters.boot.decide import BootMethod
from gpuclusters.boot.host import reboot, update
from gpuclusters.core.converge import Step
from gpuclusters.core.finding import Finding, Refused
from gpuclusters.driver import decide, model
from gpuclusters.driver.model import GpuDriverInputs, LiveDriver
from gpuclusters.host.capability import HostCapability, Reach
from gpuclusters.host.kubectl import KubectlHost, answering
from gpuclusters.host.script import look
from gpuclusters.host.ssh import SshHost
from gpuclusters.rke2.host import SshRke2Control

# A gigabyte over a slow mirror, and modules that are built for several kernels.
INSTALL_SECONDS = 2400.0
_FILES = (model.NOUVEAU_FILE, model.UPGRADES_FILE)
_REASON = "driver-"
"""How the note begins that a node was drained for its driver; see `rke2_node.DRAINED`."""


class DriverCapability(HostCapability[GpuDriverInputs, LiveDriver]):
    """The driver of one host; the servers of its cluster drain the node that it may be already."""

    room = area = "driver"
    servers: Sequence[KubectlHost] = ()
    _drained = False

    @classmethod
    def on(cls, inputs: GpuDriverInputs, reach: Reach, before: Mapping[str, Any]) -> Self:
        made = super().on(inputs, reach, before)
        made.servers = [SshRke2Control(reach(one)) for one in inputs.control]
        return made

    @property
    def steps(self) -> Mapping[str, Step[LiveDriver]]:
        """What needs no GPU first; with a restart under way the boot comes before what it would undo."""
        return {
            "files": Step(self._write, look=False),
            "install": Step(self._install),
            "initramfs": Step(self._build_initramfs, look=False),
            "boot": Step(self._restart),
            "hold": Step(self._hold, look=False),
            "restart": Step(self._restart),
            "load": Step(lambda *_: self._run("load the module nvidia", "load", seconds=300.0)),
            "fabric": Step(self._start_fabric_manager),
        }

    def observe(self) -> LiveDriver:
        return inspect(self._host)

    def findings(self, live: LiveDriver) -> Iterable[Finding]:
        return decide.findings(self._inputs, live, drained=self._drained)

    def differences(self, live: LiveDriver) -> Iterable[Finding]:
        return decide.differences(self._inputs, live)

    def prove(self, live: LiveDriver) -> None:
        """Note that it is as it must be, and open the node again if we closed it, now or in a killed run."""
        if live.applied != self._inputs.digest:
            self._run("mark the host", "finish", self._inputs.digest)
        if live.node and self.servers:
            server = answering(self.servers, self._clock, self._reporter)
            name = self._inputs.node_name
            node = server.node(name)
            if node is not None and node.drained_for.startswith(_REASON):
                server.uncordon(name)

    def outputs(self, live: LiveDriver) -> Mapping[str, Any]:
        steps = {one.step for one in self.findings(live)}
        return {
            "driver_version": live.loaded,
            "gpu_product": live.product,
            "gpu_count": len(live.shown) if live.loaded else len(live.gpu),
            "reboot_pending": live.reboot_required or bool(steps & {"boot", "restart"}),
            "kernel": live.kernel,
        }

    def is_absent(self, live: LiveDriver) -> bool:
        return not live.applied and not live.file

    def remove(self) -> None:
        """Take out what we brought. The module stays in the kernel until the next boot."""
        live = self.observe()
        used = list(decide.in_use(live))
        if used:
            raise Refused(self.target, used)
        self._run("uninstall the driver", "uninstall", live.family, seconds=INSTALL_SECONDS)
        for path in decide.contents(live):
            self._files.remove(path)

    def _write(self, live: LiveDriver, found: Sequence[Finding]) -> None:
        wanted = decide.contents(live)
        for path in sorted(str(one.path[0]) for one in found):
            self._files.write(path, wanted[path].encode(), mode="0644", owner="root:root")

    def _install(self, live: LiveDriver, found: Sequence[Finding]) -> None:
        self._vacate(live, found)
        packages = decide.installable(self._inputs, live)
        if packages is not None:
            wanted = [f"{name}={version}" for name, version in packages.wanted]
            tried, stream = f"install {', '.join(packages.names)}", packages.stream or "none"
            self._run(tried, "install", live.family, stream, *wanted, seconds=INSTALL_SECONDS)

    def _build_initramfs(self, live: LiveDriver, _found: Sequence[Finding]) -> None:
        method = BootMethod.GRUB_FOLDER if live.family == "debian" else BootMethod.GRUBBY
        stamp = f"{model.STATE}/initramfs"
        update(self._host, method, initramfs=decide.initramfs_digest(), stamp=stamp)

    def _hold(self, live: LiveDriver, _found: Sequence[Finding]) -> None:
        names = decide.loose(live, decide.installable(self._inputs, live))
        self._run(f"hold {', '.join(names)}", "hold", live.family, *names, seconds=300.0)

    def _restart(self, live: LiveDriver, found: Sequence[Finding]) -> None:
        self._vacate(live, found)
        why = [one.problem for one in found if one.code == "driver.restart-required"]
        why = why or [one.problem for one in found]
        self._reporter.note(f"{self.target}: restarting: {'; '.join(why)}")
        reboot(self._host, self._clock, live.boot_id, self._inputs.reboot_timeout_seconds)

    def _vacate(self, live: LiveDriver, found: Sequence[Finding]) -> None:
        """Drain the node before pods would lose their GPUs; who computes after that is no pod."""
        if not live.node or self._drained or not decide.disturbs(live, found):
            return
        server, inputs = answering(self.servers, self._clock, self._reporter), self._inputs
        if server.node(inputs.node_name) is not None:
            reason = f"{_REASON}{inputs.version}"
            server.drain(inputs.node_name, reason, inputs.drain_timeout_seconds)
        self._drained = True
        used = list(decide.in_use(self.observe()))
        if used:
            raise Refused(self.target, used)

    def _start_fabric_manager(self, _live: LiveDriver, _found: Sequence[Finding]) -> None:
        """Enable it, and start it anew: the one that runs may be of the driver before."""
        unit = model.FABRIC_MANAGER
        words = ("apply", unit, "enabled", "active", "restart")
        self._run(f"start {unit}", "host/unit", *words, seconds=300.0)


def inspect(host: SshHost) -> LiveDriver:
    return look(
        host, LiveDriver, "driver/inspect", _FILES, tried="look at the driver", area="driver"
    )
