"""The whole lab in one folder, started and stopped together: control plane, hosts, kubelets, issuer.

`inventory.json` is the lab's word to the program: it is written last, when everything answers, and removed
first, so whoever finds it may rely on it.
"""

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import (
    control_plane,
    gpu_operator,
    hosts,
    issuer,
    kubelet,
    nodes,
    real_nodes,
    usernetes,
)
from lab.control_plane import pki
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.control_plane.ports import kept
from lab.files import write_atomic
from lab.hosts.firmware import GOLDEN
from lab.hosts.folder import HostsFolder
from lab.issuer import IssuerStatus
from lab.nodes.objects import delete_pods
from lab.spec import LabSpec, remember, with_known

Report = Callable[[str], None]

INVENTORY = "inventory.json"
INVENTORY_VERSION = 3
AUTHORITY = "ca.crt"
"""Certificate of the lab's authority, for those who call what it serves."""
API_CERTIFICATE = Path("api") / "tls.crt"
"""What the API of a `caas` cluster shows in the lab; its key lies beside it."""
_API = pki.Client("api", "gpu-clusters-api")
MARK = "lab.json"
"""What makes a folder a lab; only a folder with this file is ever removed."""


class LabError(RuntimeError):
    """The lab cannot be started, stopped or read; the message is one sentence for a person."""

    error_id = "lab.failed"


def start(folder: Path, spec: LabSpec, report: Report) -> None:
    """Start what does not run; a lab that runs as asked is left alone.

    Machines that it has and that are not asked for any more stay, until the lab is removed.

    Raises:
        LabError: another command is at work on this lab, or the folder is not a lab.
    """
    claim(folder)
    with _exclusive(folder):
        spec = with_known(folder, spec)
        remember(folder, spec)
        with ThreadPoolExecutor(3) as pool:
            cluster = pool.submit(control_plane.start, folder, report)
            machines = pool.submit(hosts.start, folder / "hosts", spec.hosts, report)
            images = pool.submit(real_nodes.archives, spec, report)
            control, known = cluster.result(), images.result()
            machines.result()
        # Its certificate is by the authority of the control plane, for programs in pods of real nodes.
        issued = issuer.start(folder / "issuer", Layout.of(folder) if spec.real else None)
        real_nodes.start(folder, spec, known, issued, report)
        kubelet.start(
            folder / "kubelet",
            kubelet.KubeletSpec(
                control_plane=folder,
                nodes=spec.played,
                image=spec.image,
                hosts=folder / "hosts",
                joins=tuple(sorted(spec.joins - spec.real)),
                beside=tuple(sorted(spec.real)),
                real=folder / real_nodes.FOLDER if spec.real else None,
            ),
            report,
        )
        if spec.gpu_operator:
            gpu_operator.start(
                folder / "gpu_operator",
                gpu_operator.OperatorSpec(
                    control_plane=folder,
                    hosts=folder / "hosts",
                    nodes=tuple(sorted(spec.gpu_operator)),
                ),
                report,
            )
        else:
            gpu_operator.stop(folder / "gpu_operator")
        if spec.usernetes:
            usernetes.start(
                folder / "usernetes",
                control_plane=folder,
                hosts=folder / "hosts",
                kubelets=folder / "kubelet",
                report=report,
            )
        else:
            usernetes.stop(folder / "usernetes")
        write_atomic(
            folder / AUTHORITY, Layout.of(folder).certificate(pki.CA).read_bytes(), mode=0o600
        )
        # Its pods have addresses of their own; tenants come by a name of this machine's loopback.
        pki.keep(Layout.of(folder), folder / API_CERTIFICATE, _API, names=["localhost"])
        # Where machines are reached is known now: those of real nodes have moved into their networks.
        endpoints = hosts.status(folder / "hosts").hosts
        inventory = _inventory(folder, spec.name, endpoints, control.kubeconfig, issued)
        write_atomic(folder / INVENTORY, json.dumps(inventory, indent=2).encode(), mode=0o600)


def reinstall(folder: Path, host: str) -> None:
    """Install a machine's operating system anew; the inventory tells its new host key.

    Raises:
        LabError: another command is at work on this lab, or it does not run.
    """
    inventory = folder / INVENTORY
    if not inventory.exists():
        raise LabError(f"the lab in {folder} does not run; start it with `gpu-clusters lab start`")
    with _exclusive(folder):
        endpoint = hosts.reinstall(folder / "hosts", host)
        known = json.loads(inventory.read_bytes())
        known["hosts"][host]["host-key"] = endpoint.host_key
        write_atomic(inventory, json.dumps(known, indent=2).encode(), mode=0o600)
        _forget_pods(folder, host)


def _forget_pods(folder: Path, node: str) -> None:
    """A kubelet that starts on an empty disk has no containers: what ran on its node is made again."""
    layout = Layout.of(folder)
    with KubeApi(layout, kept(layout.ports)["kube-apiserver"]) as api:
        delete_pods(api, node)


def _inventory(
    folder: Path,
    cluster: str,
    endpoints: Mapping[str, hosts.HostEndpoint],
    kubeconfig: Path,
    issued: IssuerStatus,
) -> dict[str, Any]:
    keys = {"url": issued.keys_url, "ca-certificate": issued.ca_certificate}
    return {
        "version": INVENTORY_VERSION,
        "name": cluster,
        "kubeconfig": str(kubeconfig),
        "ssh-private-key": str(folder / "ssh" / "id_ed25519"),
        "bmc-password": str(HostsFolder(folder / "hosts").bmc_password),
        "issuer": issued.url,
        **({"issuer-keys": keys} if issued.keys_url else {}),
        "api": {
            "certificate": str(folder / API_CERTIFICATE),
            "private-key": str((folder / API_CERTIFICATE).with_suffix(".key")),
        },
        "golden-firmware": GOLDEN,
        "hosts": {
            name: {
                "address": endpoint.address,
                "port": endpoint.port,
                "user": endpoint.user,
                "host-key": endpoint.host_key,
                "bmc": {
                    "url": endpoint.bmc.url,
                    "user": endpoint.bmc.user,
                    "certificate": endpoint.bmc.certificate,
                },
            }
            for name, endpoint in sorted(endpoints.items())
        },
    }


def stop(folder: Path, report: Report) -> None:
    """Stop every process of the lab; its data stays. A lab that does not run is fine."""
    if not (folder / MARK).exists():
        return
    with _exclusive(folder):
        _stop(folder, report)


def remove(folder: Path, report: Report) -> bool:
    """Stop the lab and remove its folder; gives whether there was one.

    Raises:
        LabError: the folder exists but nothing marks it as a lab.
    """
    if not folder.exists():
        return False
    if not (folder / MARK).exists():
        raise LabError(f"{folder} is not a lab (it has no {MARK}); remove it yourself if it may go")
    with _exclusive(folder):
        _stop(folder, report)
        shutil.rmtree(folder)
    return True


def _stop(folder: Path, report: Report) -> None:
    (folder / INVENTORY).unlink(missing_ok=True)
    usernetes.stop(folder / "usernetes")
    gpu_operator.stop(folder / "gpu_operator")
    kubelet.stop(folder / "kubelet")
    nodes.stop(folder / real_nodes.FOLDER)
    issuer.stop(folder / "issuer")
    hosts.stop(folder / "hosts")
    control_plane.stop(folder, report)


def claim(folder: Path) -> None:
    """Make the folder a lab's, so that it may be filled and one day removed.

    Raises:
        LabError: it holds something else.
    """
    if (folder / MARK).exists():
        return
    if folder.exists() and any(folder.iterdir()):
        raise LabError(
            f"{folder} holds something that is no lab; choose another folder with GPU_CLUSTERS_LAB"
        )
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    write_atomic(folder / MARK, json.dumps({"version": INVENTORY_VERSION}).encode(), mode=0o600)


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Hold the lab for one command; a second one is told so at once, it does not wait."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"another command is at work on the lab {folder}; wait until it has ended"
            ) from None
        yield
