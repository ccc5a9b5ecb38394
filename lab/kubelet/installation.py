"""kata-deploy's pods on a real node: what they do to the machine is played, beside their containers."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.files import read_json, write_json
from lab.kubelet.kata_installer import IMAGE, InstallError, KataInstaller
from lab.kubelet.kube import Kube
from lab.kubelet.seen_pod import Pod, SeenPod, first, has_succeeded

_RETRY_SECONDS = 1.0
_log = logging.getLogger(__name__)


def is_installer(pod: Pod) -> bool:
    """Whether the pod is one of kata-deploy's."""
    image = pod["spec"]["containers"][0]["image"].partition("@")[0]
    return bool(image.rpartition(":")[0] == IMAGE)


class Installations:
    """All installations on one node, one step at a time.

    `file` remembers the pods that have installed: one that goes while nobody looks has its end later.
    """

    def __init__(self, kube: Kube, hosts: Path | None, file: Path) -> None:
        self._kube = kube
        self._hosts = hosts
        self._file = file
        self._one_at_a_time = asyncio.Lock()

    async def play(self, seen: SeenPod) -> None:
        """From the start of the pod's container until it is told to end.

        The container of a Job may have ended well before anybody saw it run.
        """
        await first(seen.runs, seen.ends)
        while has_succeeded(seen.pod) or not seen.ends.is_set():
            try:
                async with self._one_at_a_time:
                    self._remember(seen.pod)
                    await KataInstaller(self._kube, self._hosts, seen.pod).run()
                break
            except InstallError as error:
                await self._kube.event(seen.pod, "BackOff", str(error))
                await asyncio.sleep(_RETRY_SECONDS)
        await seen.ends.wait()
        await self._end(seen.pod)

    async def known(self, pods: Iterable[Pod]) -> None:
        """These are all pods of the node: those that installed and are gone end now."""
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid, pod in self._remembered().items():
            if uid not in there:
                await self._end(pod)

    async def _end(self, pod: Pod) -> None:
        async with self._one_at_a_time:
            if pod["metadata"]["uid"] in self._remembered():
                await KataInstaller(self._kube, self._hosts, pod).end()
                self._forget(pod["metadata"]["uid"])

    def _remembered(self) -> dict[str, Any]:
        return dict(read_json(self._file) or {})

    def _remember(self, pod: Pod) -> None:
        metadata = {k: v for k, v in pod["metadata"].items() if k != "managedFields"}
        kept = {"metadata": metadata, "spec": pod["spec"]}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._file, {**self._remembered(), pod["metadata"]["uid"]: kept})

    def _forget(self, uid: str) -> None:
        write_json(self._file, {k: v for k, v in self._remembered().items() if k != uid})
