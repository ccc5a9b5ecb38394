"""The command line and the environment of a container that runs as a process of this machine."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.cluster import CONFIG_MAP, SECRET
from lab.kubeconfig import kubeconfig
from lab.kubelet.fields import FieldError, field
from lab.kubelet.kube import Kube
from lab.kubelet.programs import Program
from lab.kubelet.volumes import Volumes, contents
from lab.pods.names import FOLDER_VARIABLE, NAMESPACE_VARIABLE, NODE_VARIABLE, VISIBLE
from lab.pods.rootless import InNode

PROJECT = Path(__file__).resolve().parents[2]
ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_PYTHON = re.compile(r"(.*/)?python[0-9.]*")


class ConfigError(Exception):
    """The container cannot be made from what its spec names; one sentence."""


@dataclass(frozen=True, slots=True)
class Launch:
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


class StartError(Exception):
    """The runtime cannot make the container; the text is what it says."""


class Environment:
    """Makes launches of one pod's containers. `address` is the pod's own.

    `program` says what runs for a container, `given` the variables that plugins answered for one, and
    `inside` what is inside a rootless node.
    """

    def __init__(
        self,
        kube: Kube,
        pod: Mapping[str, Any],
        volumes: Volumes,
        address: str,
        folder: Path,
        *,
        program: Callable[[Mapping[str, Any]], Program | None] = lambda _: Program(),
        given: Callable[[str], Mapping[str, str]] = lambda _: {},
        inside: Callable[[], InNode | None] = lambda: None,
    ) -> None:
        self._program = program
        self._given = given
        self._inside = inside
        self._kube = kube
        self._pod = pod
        self._volumes = volumes
        self._address = address
        self._folder = folder

    async def launch(self, container: Mapping[str, Any]) -> Launch:
        """Resolve everything that the container's spec names.

        Raises:
            ConfigError: something that it names is missing, or its command is no Python program.
            StartError: the node has no CDI name for a GPU that it is to get.
            VolumeError: it mounts a volume that the pod does not have.
            ClusterError: the API server could not be asked.
        """
        mounts = self._mounts(container)
        program = self._program(container) or Program()
        own = {**program.environment, **self._given(container["name"])}
        own |= await self._variables(container)
        inside = self._inside()
        if inside is not None and (said := inside.unresolvable(own.get(VISIBLE, ""))):
            raise StartError(said)
        given = {name: located(value, mounts) for name, value in own.items()}
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        words = [located(expanded(word, own), mounts) for word in words]
        words = [*words[:1], *program.before, *words[1:]] if not program.whole else [*program.whole]
        if not words or not _PYTHON.fullmatch(words[0]):
            raise ConfigError(
                f"the stand-in runs Python programs (command: python -m …), not {words[:1]}"
            )
        base = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(self._volumes.folder),
            "PYTHONPATH": str(PROJECT),
            "PYTHONUNBUFFERED": "1",
            FOLDER_VARIABLE: str(self._folder),
            NODE_VARIABLE: str(self._pod["spec"].get("nodeName", "")),
            NAMESPACE_VARIABLE: str(self._pod["metadata"]["namespace"]),
        }
        account = mounts.get(ACCOUNT_FOLDER)
        if account is not None and (account / "token").exists():
            base["KUBECONFIG"] = str(self._kubeconfig(account))
        return Launch((sys.executable, *words[1:]), base | given)

    def _mounts(self, container: Mapping[str, Any]) -> dict[str, Path]:
        mounts = {}
        for mount in container.get("volumeMounts") or ():
            path = self._volumes.path(mount["name"])
            mounts[mount["mountPath"].rstrip("/")] = path / mount.get("subPath", "")
        return mounts

    async def _variables(self, container: Mapping[str, Any]) -> dict[str, str]:
        variables: dict[str, str] = {}
        for source in container.get("envFrom") or ():
            prefix = source.get("prefix", "")
            for kind, key in ((CONFIG_MAP, "configMapRef"), (SECRET, "secretRef")):
                if key in source:
                    found = await self._stored(kind, source[key])
                    variables |= {f"{prefix}{name}": value for name, value in found.items()}
        for entry in container.get("env") or ():
            if "valueFrom" in entry:
                value = await self._value(entry["name"], entry["valueFrom"])
                if value is not None:
                    variables[entry["name"]] = value
            else:
                variables[entry["name"]] = expanded(entry.get("value", ""), variables)
        return variables

    async def _value(self, name: str, source: Mapping[str, Any]) -> str | None:
        match source:
            case {"fieldRef": {"fieldPath": path}}:
                try:
                    return field(self._pod, path, self._address)
                except FieldError as error:
                    raise ConfigError(
                        f"variable {name}: the stand-in cannot tell {error}"
                    ) from error
            case {"configMapKeyRef": reference}:
                kind = CONFIG_MAP
            case {"secretKeyRef": reference}:
                kind = SECRET
            case _:
                raise ConfigError(f"variable {name}: the stand-in does not know {sorted(source)}")
        found = await self._stored(kind, reference)
        if reference["key"] in found:
            return found[reference["key"]]
        if reference.get("optional"):
            return None
        raise ConfigError(
            f"variable {name}: {kind.kind} {reference['name']} has no key {reference['key']}"
        )

    async def _stored(self, kind: Any, reference: Mapping[str, Any]) -> dict[str, str]:
        namespace = self._pod["metadata"]["namespace"]
        body = await self._kube.cluster.get(kind, reference["name"], namespace)
        if body is None:
            if reference.get("optional"):
                return {}
            raise ConfigError(f'{kind.plural.removesuffix("s")} "{reference["name"]}" not found')
        return {key: value.decode(errors="replace") for key, value in contents(body).items()}

    def _kubeconfig(self, account: Path) -> Path:
        """A kubeconfig with the service account's token: the process is what its pod is."""
        server = self._kube.server
        text = kubeconfig(
            {"server": server.url, "certificate-authority": str(server.authority)},
            {"tokenFile": str(account / "token")},
            namespace=self._pod["metadata"]["namespace"],
        )
        path = self._volumes.folder / "kubeconfig"
        path.write_text(text)
        return path


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` replaced where the variable is known, `$$` by `$`: as Kubernetes does it."""

    def replacement(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return _REFERENCE.sub(replacement, text)


def located(text: str, mounts: Mapping[str, Path]) -> str:
    """Paths of mounts replaced by the folders they stand for, the longest first."""
    if not mounts:
        return text
    paths = "|".join(re.escape(mount) for mount in sorted(mounts, key=len, reverse=True))
    # In one go: a folder's own path may hold the path of another mount.
    return re.sub(
        rf"(?<![\w./-])(?:{paths})(?=$|[/:,;\s\"'])", lambda found: str(mounts[found[0]]), text
    )
