"""What builds on a rootless daemon of `docker`: the node container of Usernetes, its volumes, `exec` in it.

Output and exit status after docker(1): `exec` answers with the command's own status, 1 without a container.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from lab.hosts.call import Answer, Call
from lab.hosts.nvidia import nvidia_smi
from lab.hosts.rke2.rke2_cluster import Object
from lab.hosts.usernetes import docker, usernetes_container, usernetes_kubectl, usernetes_pki
from lab.hosts.usernetes.docker import Daemon
from lab.hosts.usernetes.usernetes_kubectl import clusters_of
from lab.hosts.usernetes.usernetes_make import forget_volumes

_VOLUMES = tuple(f"{usernetes_container.PROJECT}_node-{name}" for name in ("etc", "opt", "var"))
_PKI = "/etc/kubernetes/pki"
_KUBELET = "/var/lib/kubelet/pki/kubelet-client-current.pem"
_UNIT = "usernetes-gpus.service"
_INACTIVE = 3


def inspect(call: Call, to: Daemon, arguments: tuple[str, ...]) -> Answer:
    """`docker inspect --format FORMAT usernetes-node`: state and image of the node container."""
    there = usernetes_container.container(call.machine, to.engine.account) if to.engine else None
    if there is None or arguments[-1:] != (usernetes_container.NAME,):
        return Answer.error(f"Error response from daemon: No such object: {arguments[-1]}", 1)
    state = "running" if there["running"] else "exited"
    return Answer.out(f"{state} {there['image']}")


def volume(call: Call, to: Daemon, arguments: tuple[str, ...]) -> Answer:
    """`docker volume ls --quiet --filter …` and `docker volume rm --force NAME`."""
    has = clusters_of(call).node(call.machine.name) is not None and to.engine is not None
    if arguments[:1] == ("ls",):
        return Answer.out("\n".join(_VOLUMES) if has else "")
    if arguments[:1] == ("rm",):
        forget_volumes(call)
        return Answer()
    return Answer.error("docker volume: only ls and rm on a simulated host", 1)


def remove(call: Call, to: Daemon, arguments: tuple[str, ...]) -> Answer:
    """`docker rm --force NAME`."""
    if to.engine is not None and arguments[-1:] == (usernetes_container.NAME,):
        usernetes_container.delete(call.machine, to.engine.account)
    return Answer()


def execute(
    call: Call, to: Daemon, arguments: tuple[str, ...]
) -> Answer | Coroutine[None, None, Answer]:
    """`docker exec usernetes-node COMMAND…`."""
    words = [word for word in arguments if word not in ("-i", "-t")]
    there = usernetes_container.container(call.machine, to.engine.account) if to.engine else None
    if not to.version or there is None or words[:1] != [usernetes_container.NAME]:
        return Answer.error("Error response from daemon: No such container", 1)
    if not there["running"]:
        text = f"Error response from daemon: container {words[0]} is not running"
        return Answer.error(text, 1)
    with clusters_of(call).change() as known:
        node = known["nodes"][call.machine.name]
        usernetes_container.settle(call.machine, node, call.faults)
        act = _PROGRAMS.get(words[1])
        if act is not None:
            return act(call, node, words[2:])
    if words[1] in ("kubectl", "kubeadm"):
        return usernetes_kubectl.run(call, words[1], words[2:])
    text = f'exec: "{words[1]}": executable file not found in $PATH'
    return Answer.error(f"OCI runtime exec failed: {text}", 127)


def _file(call: Call, node: Object, path: str) -> str | None:
    """A file of the node that anything looks at."""
    if path in ("/etc/kubernetes/kubelet.conf", "/etc/kubernetes/admin.conf"):
        name = path.rpartition("/")[2].removesuffix(".conf")
        if name not in node["conf"]:
            return None
        folder = clusters_of(call).folder.parent
        return usernetes_pki.kubeconfig(folder, node["environment"]) if name == "admin" else "{}\n"
    if not node["conf"]:
        return None
    if path == f"{_PKI}/ca.crt":
        # A worker keeps the one that it joined with, also when that cluster is no more.
        cluster = clusters_of(call).read()["clusters"].get(node["cluster"])
        return str(cluster["ca"]) if cluster else f"{node['cluster']}\n"
    if path == _KUBELET or (path == f"{_PKI}/apiserver.crt" and node["role"] == "control-plane"):
        return str(node["certificate"])
    return None


def _list(call: Call, node: Object, words: list[str]) -> Answer:
    there = [path for path in words if _file(call, node, path) is not None]
    return Answer(0 if there == words else 2, "".join(f"{path}\n" for path in there))


def _test(call: Call, node: Object, words: list[str]) -> Answer:
    return Answer(0 if words[:1] == ["-f"] and _file(call, node, words[1]) is not None else 1)


def _print(call: Call, node: Object, words: list[str]) -> Answer:
    paths = [word for word in words if word.startswith(("/etc/", "/var/"))]
    texts = [_file(call, node, path) for path in paths]
    if not texts or None in texts:
        return Answer.error("No such file or directory", 1)
    return Answer.out("".join(map(str, texts)))


def _systemctl(call: Call, node: Object, words: list[str]) -> Answer:
    if words[1:] != [_UNIT]:
        return Answer.error(f"Failed: unit {words[1:]} is not on a simulated host", 1)
    if words[0] == "is-active":
        return Answer(0 if node["unit"] == "active" else _INACTIVE, f"{node['unit']}\n")
    usernetes_container.set_up(call.machine, node, call.faults)
    call.machine.note("usernetes", action="set up GPUs", gpus=len(node["gpus"]))
    return Answer(0 if node["unit"] == "active" else 1)


def _journalctl(call: Call, node: Object, words: list[str]) -> Answer:  # noqa: ARG001
    return Answer.out(node["journal"])


def _nvidia_ctk(call: Call, node: Object, words: list[str]) -> Answer:  # noqa: ARG001
    if words == ["cdi", "list"]:
        return Answer.out("\n".join(f"nvidia.com/gpu={name}" for name in node["names"]))
    if words == ["config"]:
        mode = "cdi" if node["cdi_mode"] else "auto"
        return Answer.out(f'[nvidia-container-runtime]\nlog-level = "info"\nmode = "{mode}"\n')
    return Answer.error(f"No help topic for '{' '.join(words)}'", 3)


def _containerd(call: Call, node: Object, words: list[str]) -> Answer:
    if words != ["config", "dump"]:
        return Answer.error("containerd: only `config dump` on a simulated host", 1)
    _ = call
    runtime = node["default_runtime"]
    return Answer.out(
        f"version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n"
        f"  default_runtime_name = '{runtime}'\n"
    )


def _nvidia_smi(call: Call, node: Object, words: list[str]) -> Answer:
    if not node["has_devices"]:
        return Answer.error('exec: "nvidia-smi": executable file not found in $PATH', 127)
    inside = Call(call.machine, "nvidia-smi", tuple(words), 0, "/", call.faults, {}, call.host)
    return nvidia_smi.run(inside)


Program = Callable[[Call, Object, list[str]], Answer]

_PROGRAMS: dict[str, Program] = {
    "cat": _print,
    "containerd": _containerd,
    "journalctl": _journalctl,
    "ls": _list,
    "nvidia-ctk": _nvidia_ctk,
    "nvidia-smi": _nvidia_smi,
    "sed": _print,
    "systemctl": _systemctl,
    "test": _test,
}


def install() -> None:
    """Add what this module answers to the stand-in of `docker`."""
    docker.SUBCOMMANDS.update({"exec": execute, "inspect": inspect, "rm": remove, "volume": volume})
