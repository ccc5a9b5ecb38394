"""Starting, stopping and showing the control plane of a lab."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
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
    KWOK,
    PORT_NAMES,
    PROCESSES,
    SCHEDULER,
    command_lines,
)
from lab.control_plane.files import exclusive, write_atomic
from lab.control_plane.health import Probe, wait_until
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.control_plane.model import ControlPlane, ControlPlaneError, NodeSpec, ProcessStatus
from lab.control_plane.objects import MANIFESTS, kubeconfig
from lab.control_plane.processes import Running
from lab.tools import Report
from lab.tools.catalogue import ETCD_VERSION, KWOK_VERSION
from lab.tools.report import to_stderr

_LOCK_SECONDS = 120.0
_READY_SECONDS = 90.0
_HEALTH_SECONDS = 5.0
_GRACE_SECONDS = 10.0


def start(folder: Path, nodes: Sequence[NodeSpec] = (), report: Report = to_stderr) -> ControlPlane:
    """Start what does not run of the control plane of the lab in `folder`, and keep `nodes` in it.

    Running it again changes nothing. Returns when the API server is ready, every node is Ready
    and the controllers work. Raises `ControlPlaneError` or `lab.tools.ToolError`, each one
    sentence for the user; what this call had started by then is stopped again.
    """
    layout = Layout.of(folder)
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        with _exclusive(layout):
            return _Start(layout, report).run(nodes)
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


class _Start:
    """One start: what runs, what is started, and what to undo when it fails."""

    def __init__(self, layout: Layout, report: Report) -> None:
        self.layout = layout
        self.report = report
        self.ports = ports.reserve(layout.ports, PORT_NAMES)
        self.running: dict[str, Running] = {}
        self.started: list[Running] = []

    def run(self, nodes: Sequence[NodeSpec]) -> ControlPlane:
        began = time.monotonic()
        # First what can fail without having touched anything.
        programs = tools.ensure(PROCESSES, self.report)
        renewed = pki.ensure(self.layout)
        self._write_configuration()
        commands = command_lines(self.layout, self.ports, programs)
        self.probe = Probe.of(self.layout, self.ports)
        self.running = self._keep_what_is_well(commands, everything_is_new=bool(renewed))
        missing = [name for name in PROCESSES if name not in self.running]
        self._check_ports(missing)
        try:
            self._start(missing, commands, nodes)
        except BaseException:
            processes.stop(self.started, grace_seconds=_GRACE_SECONDS)
            raise
        if missing:
            self.report(
                f"control plane started in {time.monotonic() - began:.1f} s ({', '.join(missing)})"
            )
        else:
            self.report("control plane is running: no change")
        with self._api() as api:
            version = str(api.get("/version")["gitVersion"]).removeprefix("v")
            url = api.address
        versions = {"kubernetes": version, "etcd": ETCD_VERSION, "kwok": KWOK_VERSION}
        return ControlPlane(self.layout.kubeconfig, url, versions, changed=bool(missing))

    def _write_configuration(self) -> None:
        for name in (CONTROLLER_MANAGER, SCHEDULER, KWOK):
            content = kubeconfig(self.layout, name, self.ports)
            write_atomic(self.layout.kubeconfig_of(name), content, mode=0o600)
        admin = kubeconfig(self.layout, "admin", self.ports)
        write_atomic(self.layout.kubeconfig, admin, mode=0o600)
        write_atomic(self.layout.stages, (MANIFESTS / "stages.yaml").read_bytes())

    def _keep_what_is_well(
        self, commands: Mapping[str, Sequence[str]], *, everything_is_new: bool
    ) -> dict[str, Running]:
        """Stop what is hung, doubled or started otherwise than it should be; the rest stays."""
        kept: dict[str, Running] = {}
        unwanted = []
        for found in processes.find(self.layout):
            right = found.command == tuple(commands[found.name]) and not everything_is_new
            if right and found.name not in kept and self._is_well(found.name):
                kept[found.name] = found
            else:
                unwanted.append(found)
        if unwanted:
            self.report(f"restarting {', '.join(found.name for found in unwanted)}")
            processes.stop(unwanted, grace_seconds=_GRACE_SECONDS)
        return kept

    def _is_well(self, name: str) -> bool:
        deadline = time.monotonic() + _HEALTH_SECONDS
        while not self.probe.healthy(name):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)
        return True

    def _check_ports(self, missing: Sequence[str]) -> None:
        for name in (*missing, *(["etcd-peer"] if ETCD in missing else [])):
            port = self.ports[name]
            if not ports.is_free(port):
                raise ControlPlaneError(
                    f"port {port} on {ports.LOOPBACK}, kept for {name} of the lab in "
                    f"{self.layout.folder}, is taken by {ports.holder_of(port)}; stop that, or "
                    f"remove {self.layout.ports} so that the lab chooses other ports"
                )

    def _start(
        self,
        missing: Sequence[str],
        commands: Mapping[str, Sequence[str]],
        nodes: Sequence[NodeSpec],
    ) -> None:
        def launch(*names: str) -> None:
            for name in names:
                if name in missing:
                    self.running[name] = processes.spawn(name, commands[name], self.layout)
                    self.started.append(self.running[name])

        launch(ETCD)
        # The API server gives up a second at a time when its database is not there yet.
        self._wait(ETCD)
        launch(API_SERVER, CONTROLLER_MANAGER)
        self._wait(API_SERVER)
        launch(SCHEDULER)
        with self._api() as api:
            cluster.install_stand_ins(api)
            cluster.register(api, nodes, self.ports[KWOK])
            self._until(lambda: cluster.stand_ins_served(api), "the stand-in kinds being served")
            launch(KWOK)
            self._wait(KWOK, CONTROLLER_MANAGER, SCHEDULER)
            self._until(lambda: cluster.nodes_ready(api, nodes), "all nodes being Ready")
            self._until(lambda: cluster.accepts_pods(api), "the default service account")

    def _wait(self, *names: str) -> None:
        for name in names:
            self._until(partial(self.probe.healthy, name), f"{name} being ready")

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        wait_until(ready, what, self.running, self.layout, seconds=_READY_SECONDS)

    def _api(self) -> KubeApi:
        return KubeApi(self.layout, self.ports[API_SERVER])
