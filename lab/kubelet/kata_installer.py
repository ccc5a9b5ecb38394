"""What a pod of the image `kata-deploy` does to its node: Kata installed on the simulated host, and a label.

Follows Kata Containers 4.1.0, `tools/packaging/kata-deploy/binary`: for each shim a folder
`<prefix>/share/defaults/kata-containers[/runtime-rs]/runtimes/<shim>` with its configuration, the user's
drop-in as `config.d/50-user-overrides.toml`, handlers in a drop-in of containerd, at the end the label
`katacontainers.io/kata-runtime=true` and that of the installation. When the pod is told to end and its
DaemonSet no longer wants a pod on the node, all of it is reverted. No VMM, no image of a guest: a
file that says so stands for it.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from lab.cluster import CONFIG_MAP, DAEMON_SET, NODE
from lab.hosts.folder import HostsFolder
from lab.kubelet.kube import Kube

IMAGE: Final = "quay.io/kata-containers/kata-deploy"
GUEST_IMAGE: Final = "kata-containers-nvidia-gpu.img"
GUEST_IMAGE_BYTES: Final = b"stand-in of Kata's guest image with an NVIDIA driver\n"
DRIVER: Final = "595.58.03"
"""`externals.nvidia.driver` in versions.yaml of Kata Containers 4.1.0."""
_VERSIONS: Final = """externals:
  nvidia:
    driver:
      desc: "NVIDIA kernel driver"
      version: "{driver}"
"""
_MANAGER: Final = "kata-deploy"
_VOLUME: Final = "custom-configs"
_RKE2_DROP_IN: Final = (
    "/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d/kata-deploy.toml"
)
_RKE2_CONFIGURATION: Final = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"


class InstallError(Exception):
    """The installation cannot go on; one sentence, which the container says."""


class KataInstaller:
    def __init__(self, kube: Kube, hosts: Path | None, pod: Mapping[str, Any]) -> None:
        self._kube = kube
        self._pod = pod
        self._node = str(pod["spec"]["nodeName"])
        self._root = HostsFolder(hosts).host(self._node).root if hosts is not None else None

    @property
    def cleans_up(self) -> bool:
        """Whether the pod is there to remove Kata."""
        return "cleanup" in (self._pod["spec"]["containers"][0].get("command") or ())

    async def run(self) -> None:
        """What the container does until it is ready.

        Raises:
            InstallError: the chart's settings are not there.
        """
        settings, drop_ins = await self._settings()
        if self.cleans_up:
            await self._revert(settings)
            return
        if self._root is not None:
            refuse_ignored_drop_in(self._root, settings["distribution"])
            for path, content in installed_files(settings, drop_ins):
                file = self._root / path.lstrip("/")
                file.parent.mkdir(parents=True, exist_ok=True)
                if content is None:
                    file.unlink(missing_ok=True)
                else:
                    file.write_bytes(content)
        marker = f"kata-deploy.katacontainers.io/{settings['suffix'] or 'default'}"
        await self._label({"katacontainers.io/kata-runtime": "true", marker: "true"})

    async def end(self) -> None:
        """What it does when it is told to end: nothing while its DaemonSet wants a pod here."""
        metadata = self._pod["metadata"]
        owners = [o for o in metadata.get("ownerReferences") or () if o["kind"] == "DaemonSet"]
        for owner in owners:
            if not await self._wanted(owner["name"], owner["uid"]):
                settings, _ = await self._settings(gone_is_fine=True)
                await self._revert(settings)

    async def _wanted(self, daemon_set: str, uid: str) -> bool:
        namespace = self._pod["metadata"]["namespace"]
        found = await self._kube.cluster.get(DAEMON_SET, daemon_set, namespace)
        if found is None or found["metadata"]["uid"] != uid:
            return False
        node = await self._kube.cluster.get(NODE, self._node) or {"metadata": {}}
        selector = found["spec"]["template"]["spec"].get("nodeSelector") or {}
        labels = node["metadata"].get("labels") or {}
        return "deletionTimestamp" not in found["metadata"] and selector.items() <= labels.items()

    async def _settings(
        self, *, gone_is_fine: bool = False
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        volumes = self._pod["spec"].get("volumes") or ()
        names = [v["configMap"]["name"] for v in volumes if v["name"] == _VOLUME]
        found = None
        if names:
            found = await self._kube.cluster.get(
                CONFIG_MAP, names[0], self._pod["metadata"]["namespace"]
            )
        if found is None:
            if gone_is_fine:
                suffix = names[0].removeprefix("kata-deploy").removesuffix("-custom-configs")
                return {"suffix": suffix.strip("-"), "distribution": "", "shims": []}, {}
            raise InstallError("failed to read /custom-configs: no such file or directory")
        data = dict(found.get("data") or {})
        return json.loads(data.pop("settings.json")), data

    async def _revert(self, settings: Mapping[str, Any]) -> None:
        await self._label({})
        if self._root is None:
            return
        for path in (_drop_in(settings), _RKE2_DROP_IN):
            (self._root / path.lstrip("/")).unlink(missing_ok=True)
        shutil.rmtree(self._root / _prefix(settings).lstrip("/"), ignore_errors=True)

    async def _label(self, labels: Mapping[str, str]) -> None:
        body = {
            "apiVersion": NODE.api_version,
            "kind": NODE.kind,
            "metadata": {"name": self._node, "labels": dict(labels)},
        }
        await self._kube.cluster.apply(NODE, body, manager=_MANAGER)


def refuse_ignored_drop_in(root: Path, distribution: str) -> None:
    """Refuse a containerd that would not read the handlers (kata-deploy's `get_containerd_paths`).

    Raises:
        InstallError: RKE2 wrote a configuration that does not import its folder of drop-ins.
    """
    written = root / _RKE2_CONFIGURATION.lstrip("/")
    if distribution != "rke2" or not written.exists():
        return
    folder = PurePosixPath(_RKE2_DROP_IN).parent
    if f"{folder.name}/*.toml" not in written.read_text():
        raise InstallError(
            f"K3s/RKE2: rendered config at {_RKE2_CONFIGURATION} does not import the drop-in dir "
            f"{str(folder)!r}"
        )


def _prefix(settings: Mapping[str, Any]) -> str:
    return "-".join(filter(None, ("/opt/kata", settings["suffix"])))


def _drop_in(settings: Mapping[str, Any]) -> str:
    name = "-".join(filter(None, ("kata-deploy", settings["suffix"])))
    return f"/etc/containerd/conf.d/{name}.toml"


def installed_files(
    settings: Mapping[str, Any], drop_ins: Mapping[str, str]
) -> Iterator[tuple[str, bytes | None]]:
    """Files by path; None for one that must not be there."""
    prefix = _prefix(settings)
    handlers = ["version = 3\n"]
    for shim in settings["shims"]:
        rust = shim.endswith("-runtime-rs")
        defaults = f"{prefix}/share/defaults/kata-containers{'/runtime-rs' if rust else ''}"
        folder = f"{defaults}/runtimes/{shim}"
        configuration = f"{folder}/configuration-{shim}.toml"
        drop_in = drop_ins.get(f"dropin-{shim}.toml")
        yield configuration, _configuration(prefix).encode()
        yield f"{folder}/config.d/50-user-overrides.toml", drop_in.encode() if drop_in else None
        handlers.append(_handler(prefix, shim, str(settings["suffix"]), configuration, rust=rust))
    yield f"{prefix}/share/kata-containers/{GUEST_IMAGE}", GUEST_IMAGE_BYTES
    yield f"{prefix}/versions.yaml", _VERSIONS.format(driver=DRIVER).encode()
    theirs = settings["distribution"] in ("rke2", "k3s")
    yield _RKE2_DROP_IN if theirs else _drop_in(settings), "\n".join(handlers).encode()


def _configuration(prefix: str) -> str:
    return (
        "[hypervisor.qemu]\n"
        f'image = "{prefix}/share/kata-containers/{GUEST_IMAGE}"\n'
        'kernel_verity_params = "root_hash=stand-in"\n'
    )


def _handler(prefix: str, shim: str, suffix: str, configuration: str, *, rust: bool) -> str:
    name = f"kata-{shim}-{suffix}" if suffix else f"kata-{shim}"
    binary = f"{prefix}{'/runtime-rs' if rust else ''}/bin/containerd-shim-kata-v2"
    table = f"plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}"
    return (
        f"[{table}]\n"
        f'runtime_type = "io.containerd.{name}.v2"\n'
        f'runtime_path = "{binary}"\n'
        "privileged_without_host_devices = true\n"
        'pod_annotations = ["io.katacontainers.*"]\n'
        f"[{table}.options]\n"
        f'ConfigPath = "{configuration}"\n'
    )
