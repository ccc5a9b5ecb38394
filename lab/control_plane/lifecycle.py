"""Starting, stopping and showing the control plane of a lab."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil

from lab import tools
from lab.control_plane import cluster, pki, ports, processes
from lab.control_plane.commands import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    KUBELET,
    PORT_NAMES,
    PROCESSES,
    SCHEDULER,
    command_lines,
)
from lab.control_plane.files import exclusive
from lab.control_plane.health import POLL_SECONDS, Probe, wait_until
from lab.control_plane.kube import Https, KubeApi
from lab.control_plane.layout import Layout
from lab.control_plane.model import ControlPlane, ControlPlaneError, ProcessStatus
from lab.control_plane.objects import kubeconfig_of
from lab.control_plane.processes import Running
from lab.files import write_atomic
from lab.tools import Report
from lab.tools.model import to_stderr

_LOCK_SECONDS = 120.0
_READY_SECONDS = 240.0
_HEALTH_SECONDS = 60.0
"""A busy machine holds up what is well; who starts it anew by mistake takes it from all that use it."""
_PORT_SECONDS = 30.0
_GRACE_SECONDS = 30.0


def start(folder: Path, report: Report = to_stderr) -> ControlPlane:
    """Start what does not run of the control plane of the lab in `folder`.

    Running it again changes nothing. Returns when the API server is ready and the
    controllers work. Raises `ControlPlaneError` or `lab.tools.ToolError`, each one
    sentence for the user; what this call had started by then is stopped again.
    """
    layout = Layout.of(folder)
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        with _exclusive(layout):
            return _Start(layout, report).run()
    except OSError as error:
        raise ControlPlaneError(
            f"the control plane in {layout.root} cannot be started: {error.strerror or error}"
            f"{f' ({error.filename})' if error.filename else ''}; make room or the folder writable"
        ) from error


def stop(folder: Path, report: Report = to_stderr) -> None:
    """Stop every process of the lab's control plane; its data, keys and ports stay."""
    layout = Layout.of(folder)
    if not layout.root.exists():
        _stop(layout, report)
        return
    with _exclusive(layout):
        _stop(layout, report)


def remove(folder: Path, report: Report = to_stderr) -> None:
    """Stop the control plane and remove all that it keeps, its ports included."""
    layout = Layout.of(folder)
    stop(folder, report)
    shutil.rmtree(layout.root, ignore_errors=True)
    layout.kubeconfig.unlink(missing_ok=True)


def status(folder: Path) -> list[ProcessStatus]:
    """Every process of the control plane, running or not, in the order of starting."""
    layout = Layout.of(folder)
    kept = ports.kept(layout.ports)
    running = {found.name: found for found in processes.find(layout)}
    return [_status(name, running.get(name), kept.get(name, 0), layout) for name in PROCESSES]


def _status(name: str, running: Running | None, port: int, layout: Layout) -> ProcessStatus:
    absent = ProcessStatus(name, port=port, log=layout.log(name))
    if running is None:
        return absent
    try:
        with running.process.oneshot():
            return replace(
                absent,
                running=True,
                pid=running.process.pid,
                since=running.process.create_time(),
                rss_bytes=running.process.memory_info().rss,
            )
    except psutil.NoSuchProcess:
        # It ended between the search and the question.
        return absent


def _stop(layout: Layout, report: Report) -> None:
    running = processes.find(layout)
    if not running:
        return
    killed = processes.stop(running, grace_seconds=_GRACE_SECONDS)
    if killed:
        report(f"{', '.join(killed)} did not end within {_GRACE_SECONDS:.0f} s: killed")
    left = processes.find(layout)
    if left:
        names = ", ".join(f"{r.name} (pid {r.process.pid})" for r in left)
        raise ControlPlaneError(f"{names} cannot be stopped; end them by hand and try again")


def _exclusive(layout: Layout) -> AbstractContextManager[None]:
    return exclusive(
        layout.lock,
        wait_seconds=_LOCK_SECONDS,
        busy=f"another command has been working on the lab in {layout.folder} for "
        f"{_LOCK_SECONDS:.0f} s; wait for it to end",
    )


def _becomes_free(port: int) -> bool:
    # The kernel takes a moment to close the sockets of a process that was killed.
    deadline = time.monotonic() + _PORT_SECONDS
    while not ports.is_free(port):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


class _Start:
    """One start: what runs, what is started, and what to undo when it fails."""

    def __init__(self, layout: Layout, report: Report) -> None:
        self.layout = layout
        self.report = report
        # First what can fail without having touched anything.
        programs = tools.ensure(PROCESSES, report)
        self.ports = ports.reserve(layout.ports, PORT_NAMES)
        self.renewed = pki.ensure(layout)
        self._write_configuration()
        self.commands = command_lines(layout, self.ports, programs)
        self.probe = Probe.of(layout, self.ports)
        self.running: dict[str, Running] = {}
        self.started: list[Running] = []

    def run(self) -> ControlPlane:
        began = time.monotonic()
        self._keep_what_fits()
        self._check_ports()
        try:
            self._start()
        except BaseException:
            processes.stop(self.started, grace_seconds=_GRACE_SECONDS)
            raise
        names = [running.name for running in self.started]
        took = f"{time.monotonic() - began:.1f} s"
        if names:
            self.report(f"control plane: started {', '.join(names)} in {took}")
        else:
            self.report("control plane: runs already, no change")
        url = f"https://{ports.LOOPBACK}:{self.ports[API_SERVER]}"
        return ControlPlane(self.layout.kubeconfig, url, self._versions(), changed=bool(names))

    def _write_configuration(self) -> None:
        for name in (CONTROLLER_MANAGER, SCHEDULER, KUBELET):
            content = kubeconfig_of(self.layout, name, self.ports)
            write_atomic(self.layout.kubeconfig_of(name), content, mode=0o600)
        admin = kubeconfig_of(self.layout, "admin", self.ports)
        write_atomic(self.layout.kubeconfig, admin, mode=0o600)

    def _keep_what_fits(self) -> None:
        """Stop what is doubled or was started otherwise than it would be now; the rest stays."""
        unwanted = []
        for found in processes.find(self.layout):
            fits = found.command == tuple(self.commands[found.name]) and not self.renewed
            if fits and found.name not in self.running:
                self.running[found.name] = found
            else:
                unwanted.append(found)
        self._stop("its settings changed", unwanted)

    def _stop(self, reason: str, unwanted: Sequence[Running]) -> None:
        for found in unwanted:
            self.report(f"restarting {found.name} (pid {found.process.pid}): {reason}")
        processes.stop(unwanted, grace_seconds=_GRACE_SECONDS)

    def _check_ports(self) -> None:
        for name, port in self.ports.items():
            if name.removesuffix("-peer") not in self.running and not _becomes_free(port):
                raise ControlPlaneError(
                    f"port {port} on {ports.LOOPBACK}, kept for {name} of the lab in "
                    f"{self.layout.folder}, is taken by {ports.holder_of(port)}; stop that, or "
                    f"remove {self.layout.ports} so that the lab chooses other ports"
                )

    def _start(self) -> None:
        self._launch(ETCD)
        # The API server gives up a second at a time when its database is not there yet.
        self._settle(ETCD)
        self._launch(API_SERVER, CONTROLLER_MANAGER)
        # It starts while the API server does, and gives up when that takes more than 10 s.
        self._settle(API_SERVER, may_end=CONTROLLER_MANAGER)
        self._launch_again_if_ended(CONTROLLER_MANAGER)
        self._launch(SCHEDULER)
        with KubeApi(self.layout, self.ports[API_SERVER]) as api:
            cluster.install_stand_ins(api)
            self._until(lambda: cluster.stand_ins_served(api), "the stand-in kinds being served")
            self._settle(CONTROLLER_MANAGER, SCHEDULER)
            self._until(lambda: cluster.accepts_pods(api), "the default service account")

    def _launch(self, *names: str) -> None:
        for name in names:
            if name not in self.running:
                self.running[name] = processes.spawn(name, self.commands[name], self.layout)
                self.started.append(self.running[name])

    def _launch_again_if_ended(self, name: str) -> None:
        if not processes.is_alive(self.running[name]):
            ended = self.running.pop(name)
            self.started = [running for running in self.started if running != ended]
            self._launch(name)

    def _settle(self, *names: str, may_end: str = "") -> None:
        """Wait until the processes are well; one that ran before and hangs is started anew."""
        for name in names:
            if self.running[name] not in self.started and not self._recovers(name):
                hung = self.running.pop(name)
                self._stop(f"it has not answered for {_HEALTH_SECONDS:.0f} s", [hung])
                self._launch(name)
            self._until(partial(self.probe.healthy, name), f"{name} being ready", may_end)

    def _recovers(self, name: str) -> bool:
        deadline = time.monotonic() + _HEALTH_SECONDS
        while not self.probe.healthy(name):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _until(self, ready: Callable[[], bool], what: str, may_end: str = "") -> None:
        needed = {name: running for name, running in self.running.items() if name != may_end}
        wait_until(ready, what, needed, self.layout, seconds=_READY_SECONDS)

    def _versions(self) -> dict[str, str]:
        with KubeApi(self.layout, self.ports[API_SERVER]) as api:
            kubernetes = str(api.get("/version")["gitVersion"]).removeprefix("v")
        with Https(self.ports[ETCD], self.probe.identity) as etcd:
            _, answer = etcd.request("GET", "/version")
        return {"kubernetes": kubernetes, "etcd": str(json.loads(answer)["etcdserver"])}
