"""NVIDIA's driver on a host over SSH, by the scripts in `gpuclusters/driver/scripts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpuclusters.boot.decide import BootMethod
from gpuclusters.boot.host import reboot, update
from gpuclusters.core.converge import Clock, Reporter, Step
from gpuclusters.core.finding import Finding, Refused
from gpuclusters.driver import decide, model
from gpuclusters.driver.model import GpuDriverInputs, LiveDriver
from gpuclusters.host.kubectl import KubectlHost, answering
from gpuclusters.host.remote import SshNodeFiles
from gpuclusters.host.script import read_facts, run_script
from gpuclusters.host.ssh import SshHost

# A gigabyte over a slow mirror, and modules that are built for several kernels.
INSTALL_SECONDS = 2400.0
_FILES = (model.NOUVEAU_FILE, model.UPGRADES_FILE)
_REASON = "driver-"
"""How the note begins that a node was drained for its driver; see `rke2_node.DRAINED`."""


class DriverCapability:
    """The driver of one host; `servers` drain the node that the host may be already."""

    def __init__(
        self,
        inputs: GpuDriverInputs,
        host: SshHost,
        servers: Sequence[KubectlHost],
        clock: Clock,
        reporter: Reporter,
    ) -> None:
        self._inputs = inputs
        self._host = host
        self._files = SshNodeFiles(host)
        self._servers = servers
        self._clock = clock
        self._reporter = reporter
        self._drained = False
        self.target = host.target
        self.steps = {
            "files": Step(self._write, look=False),
            "install": Step(self._install),
            "initramfs": Step(self._build_initramfs, look=False),
            "boot": Step(self._restart),
            "hold": Step(self._hold, look=False),
            "restart": Step(self._restart),
            "load": _step(lambda: self._run("load the module nvidia", "load", [], 300.0)),
            "fabric": _step(self._start_fabric_manager),
        }

    def observe(self) -> LiveDriver:
        """What is there."""
        return inspect(self._host)

    def findings(self, live: LiveDriver) -> Iterable[Finding]:
        """See `decide.findings`."""
        return decide.findings(self._inputs, live, drained=self._drained)

    def differences(self, live: LiveDriver) -> Iterable[Finding]:
        """See `decide.differences`."""
        return decide.differences(self._inputs, live)

    def prove(self, live: LiveDriver) -> None:
        """Note that it is as it must be, and open the node again if we closed it, now or in a killed run."""
        if live.applied != self._inputs.digest:
            self._run("mark the host", "finish", [self._inputs.digest])
        if live.node and self._servers:
            server, name = (
                answering(self._servers, self._clock, self._reporter),
                self._inputs.node_name,
            )
            node = server.node(name)
            if node is not None and node.drained_for.startswith(_REASON):
                server.uncordon(name)

    def remove(self) -> None:
        """Take out what we brought. The module stays in the kernel until the next boot."""
        live = self.observe()
        used = list(decide.in_use(live))
        if used:
            raise Refused(self.target, used)
        self._run("uninstall the driver", "uninstall", [live.family], INSTALL_SECONDS)
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
            arguments = [live.family, packages.stream or "none", *wanted]
            tried = f"install {', '.join(packages.names)}"
            self._run(tried, "install", arguments, INSTALL_SECONDS)

    def _build_initramfs(self, live: LiveDriver, _found: Sequence[Finding]) -> None:
        method = BootMethod.GRUB_FOLDER if live.family == "debian" else BootMethod.GRUBBY
        stamp = f"{model.STATE}/initramfs"
        update(self._host, method, initramfs=decide.initramfs_digest(), stamp=stamp)

    def _hold(self, live: LiveDriver, _found: Sequence[Finding]) -> None:
        names = decide.loose(live, decide.installable(self._inputs, live))
        self._run(f"hold {', '.join(names)}", "hold", [live.family, *names], 300.0)

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
        server, inputs = answering(self._servers, self._clock, self._reporter), self._inputs
        if server.node(inputs.node_name) is not None:
            reason = f"{_REASON}{inputs.version}"
            server.drain(inputs.node_name, reason, inputs.drain_timeout_seconds)
        self._drained = True
        used = list(decide.in_use(self.observe()))
        if used:
            raise Refused(self.target, used)

    def _start_fabric_manager(self) -> None:
        """Enable it, and start it anew: the one that runs may be of the driver before."""
        unit = model.FABRIC_MANAGER
        arguments = ["apply", unit, "enabled", "active", "restart"]
        self._run(f"start {unit}", "host/unit", arguments, 300.0)

    def _run(
        self, tried: str, name: str, arguments: Sequence[str], seconds: float | None = None
    ) -> None:
        script = name if "/" in name else f"driver/{name}"
        how: dict[str, Any] = {"timeout_seconds": seconds, "area": "driver"}
        run_script(self._host, script, arguments, tried=tried, **how)


def inspect(host: SshHost) -> LiveDriver:
    """The driver of a host as it is."""
    tried = "look at the driver"
    done = run_script(host, "driver/inspect", _FILES, tried=tried, repeatable=True, area="driver")
    return read_facts(LiveDriver, host, done.stdout.decode(errors="replace"), tried=tried)


def _step(run: Callable[[], None]) -> Step[LiveDriver]:
    def without_arguments(_live: LiveDriver, _found: Sequence[Finding]) -> None:
        run()

    return Step(without_arguments)
