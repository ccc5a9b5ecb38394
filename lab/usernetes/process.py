"""Starts, stops and finds the process of a folder."""

from pathlib import Path

from lab.server_process import Report, Server, ServerFolder, ServerStatus
from lab.usernetes.model import PluginSpec, UsernetesError

SERVER = Server("lab.usernetes", "the stand-in of rootless nodes", UsernetesError)


def start(
    folder: Path,
    *,
    control_plane: Path,
    hosts: Path,
    report: Report = lambda _: None,
    kubelets: Path | None = None,
) -> ServerStatus:
    """Tell the kubelets until stopped; again: changes nothing.

    Args:
        folder: where everything about the stand-in is kept.
        control_plane: folder of the lab.
        hosts: folder of the simulated hosts; the node of a host has its name.
        report: receives a line for each step that takes time.
        kubelets: folder of the lab's kubelets; `kubelet` in that of the lab if it is None.

    Raises:
        UsernetesError: it did not come up; the message says why.
    """
    spec = PluginSpec(hosts.resolve(), (kubelets or control_plane / "kubelet").resolve())
    return SERVER.start(ServerFolder(folder.resolve()), spec.document(), report)


def stop(folder: Path) -> None:
    """End the process. Nothing to do is fine; its files stay."""
    SERVER.stop(ServerFolder(folder.resolve()))


def status(folder: Path) -> ServerStatus:
    return SERVER.status(ServerFolder(folder.resolve()))
