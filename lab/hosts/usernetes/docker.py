"""Stand-in for `docker`: rootless daemons, the daemon that runs as root, and the node of Usernetes.

Sources: docker(1) (DOCKER_HOST, `info`, `version`, `run`, `ps`, exit status 125 for a daemon's refusal;
`exec` answers with the command's own status, 1 without a container), moby's `api/types/system` and its CDI
driver ("unresolvable CDI devices"), NVIDIA's container toolkit ("Failed to initialize NVML: Unknown Error"
after a reload of systemd).
"""

import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.hosts import accounts
from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import ImageRefused, NvmlLost, RootfulContainers
from lab.hosts.nvidia import cdi, nvidia_smi
from lab.hosts.program import program, typed
from lab.hosts.systemd import units
from lab.hosts.usernetes import rootless, usernetes_container, usernetes_kubectl, usernetes_pki
from lab.hosts.usernetes.rootless import Engine
from lab.hosts.usernetes.usernetes_kubectl import clusters_of
from lab.hosts.usernetes.usernetes_make import forget_volumes

_ROOTFUL_SOCKET = "unix:///var/run/docker.sock"
_ROOTFUL_UNIT = "docker.service"
_REFUSED = 125
_NODE = usernetes_container.NAME
_VOLUMES = tuple(f"{usernetes_container.PROJECT}_node-{name}" for name in ("etc", "opt", "var"))
_OURS = f"label=com.docker.compose.project={usernetes_container.PROJECT}"
_PKI = "/etc/kubernetes/pki"
_KUBELET = "/var/lib/kubelet/pki/kubelet-client-current.pem"
_UNIT = "usernetes-gpus.service"
_INACTIVE = 3

Object = dict[str, Any]
Said = Answer | Coroutine[None, None, Answer]


@dataclass(frozen=True, slots=True)
class _Daemon:
    socket: str
    engine: Engine | None
    """None: the one that runs as root."""
    version: str
    """Empty: it does not run."""

    @property
    def unreachable(self) -> str:
        return (
            f"Cannot connect to the Docker daemon at {self.socket}. Is the docker daemon running?"
        )

    def require(self, text: str = "", code: int = 1) -> None:
        if not self.version:
            raise RefusedError(f"{text}{self.unreachable}", code)


@program("docker", on="ubuntu", of="docker-ce-cli", unknown=None)
def docker(call: Call) -> Said:
    verb, *rest = call.arguments or ("",)
    socket = call.environment.get("DOCKER_HOST", "")
    if verb.startswith("--host="):
        socket = verb.partition("=")[2]
        verb, *rest = rest or [""]
    if verb == "--version":
        return Answer.out(f"Docker version {_client(call)}, build simulated")
    known = _COMMANDS.get(verb)
    if known is None:
        raise RefusedError(f"docker: '{verb}' is not a docker command on a simulated host.")
    call = typed(
        call,
        known.flags,
        known.values,
        arguments=rest,
        until_word=verb in {"run", "exec"},
        unknown=f"docker {verb}: {{option}} is not known on a simulated host",
        exit_code=_REFUSED,
    )
    return known.act(call, _daemon(call, socket))


def _refused(command: str, word: str) -> RefusedError:
    text = f"docker {command}: {word.partition('=')[0]} is not known on a simulated host"
    return RefusedError(text, _REFUSED)


def _client(call: Call) -> str:
    return rootless.upstream(call.machine.packages.get("docker-ce-cli", ""))


def _daemon(call: Call, socket: str) -> _Daemon:
    """The daemon behind a socket; without one the context that the setup tool left, or root's."""
    socket = socket or _context(call)
    uid = socket.removeprefix("unix:///run/user/").removesuffix("/docker.sock")
    account = accounts.by_uid(call.machine, int(uid)) if uid.isdecimal() else None
    if account is not None:
        engine = rootless.engine(call.machine, account, call.faults)
        return _Daemon(socket, engine, engine.version if engine.running else "")
    version = rootless.upstream(call.machine.packages.get("docker-ce", ""))
    there = units.text(call.machine, _ROOTFUL_UNIT) is not None
    running = there and units.is_active(call.machine, _ROOTFUL_UNIT)
    return _Daemon(socket, None, version if running else "")


def _context(call: Call) -> str:
    account = accounts.by_uid(call.machine, call.uid) if call.uid else None
    unit = f".config/systemd/user/{rootless.UNIT}"
    if account is not None and call.machine.path(f"{account.home}/{unit}").exists():
        return f"unix://{account.runtime}/docker.sock"
    return _ROOTFUL_SOCKET


def _info(call: Call, to: _Daemon) -> Answer:
    """`docker info [--format '{{json .}}']`."""
    form = call.value("--format")
    if form not in (None, "{{json .}}"):
        raise _refused("info", form)
    if not to.version:
        if form is None:
            raise RefusedError(f"ERROR: {to.unreachable}")
        return Answer(1, json.dumps({"ServerErrors": [to.unreachable]}) + "\n")
    said = _described(call, to)
    if form is not None:
        return Answer.out(json.dumps(said))
    return Answer.out(
        f"Server:\n Server Version: {said['ServerVersion']}\n"
        f" Runtimes: {' '.join(said['Runtimes'])}\n Default Runtime: {said['DefaultRuntime']}\n"
        " Security Options:\n" + "".join(f"  {one[5:]}\n" for one in said["SecurityOptions"])
    )


def _described(call: Call, to: _Daemon) -> Object:
    """What `docker info` says of a daemon that runs."""
    engine = to.engine
    security = ["name=seccomp,profile=builtin", "name=cgroupns"]
    runtimes: tuple[str, ...] = ("io.containerd.runc.v2", "runc")
    directories: tuple[str, ...] = cdi.DIRECTORIES
    devices: tuple[str, ...] = ()
    default = "runc"
    if engine is None:
        containers = list(_rootful(call))
        up = len(containers)
    else:
        runtimes, default = engine.runtimes, engine.default_runtime
        containers = list(engine.containers)
        up = sum(bool(one.get("running")) for one in engine.containers.values())
        directories, devices = engine.cdi_directories, engine.cdi_devices
        security += ["name=rootless"] if engine.is_rootless else []
    return {
        "ServerVersion": to.version,
        "Containers": len(containers),
        "ContainersRunning": up,
        "CgroupDriver": "systemd",
        "CgroupVersion": "2",
        "Runtimes": {name: {"path": name} for name in runtimes},
        "DefaultRuntime": default,
        "SecurityOptions": security,
        "CDISpecDirs": list(directories),
        "DiscoveredDevices": [{"Source": "cdi", "ID": name} for name in devices],
        "Name": call.machine.name,
    }


def _version(call: Call, to: _Daemon) -> Answer:
    """`docker version [--format '{{.Server.Version}}']`."""
    form = call.value("--format")
    if form not in (None, "{{.Server.Version}}"):
        raise _refused("version", form)
    to.require()
    if form is not None:
        return Answer.out(to.version)
    return Answer.out(f"Client:\n Version: {_client(call)}\nServer:\n Version: {to.version}")


def _ps(call: Call, to: _Daemon) -> Answer:
    """`docker ps [-a] [-q]`: the containers that run, or all of them."""
    to.require()
    if to.engine is None:
        names = list(_rootful(call))
    else:
        kept = to.engine.containers.items()
        names = [name for name, one in kept if call.has("-a") or one.get("running")]
    head = [] if call.has("-q") else ["CONTAINER ID   IMAGE   NAMES"]
    return Answer.out("\n".join([*head, *names]))


def _rootful(call: Call) -> tuple[str, ...]:
    fault = call.faults.first(RootfulContainers)
    return fault.names if fault else ()


def _run(call: Call, to: _Daemon) -> Said:
    """`docker run [--device NAME…] [--entrypoint PROGRAM] IMAGE [COMMAND…]`: what a container sees."""
    if not call.words:
        raise RefusedError("docker: 'docker run' requires at least 1 argument")
    to.require("docker: ", _REFUSED)
    image, *rest = call.words
    failed = "docker: Error response from daemon: "
    if call.faults.first(ImageRefused):
        text = f'failed to resolve reference "{image}": dial tcp: i/o timeout'
        raise RefusedError(failed + text, _REFUSED)
    wanted = call.given.values.get("--device", [])
    known = to.engine.cdi_devices if to.engine else ()
    missing = [name for name in wanted if name not in known]
    if missing:
        text = f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}"
        raise RefusedError(failed + text, _REFUSED)
    command = [*call.given.values.get("--entrypoint", []), *rest]
    call.machine.note("container", image=image, devices=wanted, command=command)
    if command not in (["nvidia-smi", "-L"], ["nvidia-smi", "--list-gpus"]):
        return Answer()
    if not wanted:
        raise RefusedError(f'{failed}exec: "nvidia-smi": executable file not found in $PATH', 127)
    if call.faults.first(NvmlLost):
        return Answer(255, "Failed to initialize NVML: Unknown Error\n")
    return nvidia_smi.smi(_inside(call, ["-L"]))


def _inside(call: Call, words: list[str]) -> Call:
    """`nvidia-smi` in a container."""
    return replace(call, name="nvidia-smi", arguments=tuple(words), cwd="/", environment={})


def _container(call: Call, to: _Daemon, name: str, called: str = "container") -> Object:
    """The node's container, the only one that is looked into."""
    there = usernetes_container.container(call.machine, to.engine.account) if to.engine else None
    if there is None or name != _NODE or not to.version:
        raise RefusedError(f"Error response from daemon: No such {called}: {name}")
    return there


def _inspect(call: Call, to: _Daemon) -> Answer:
    """`docker inspect [--format FORMAT] usernetes-node`: its state, and its image by a label."""
    if len(call.words) != 1:
        raise _refused("inspect", " ".join(call.words))
    there = _container(call, to, call.verb, "object")
    fields = {
        ".Id": there["id"],
        ".State.StartedAt": there["started"],
        ".State.Status": "running" if there["running"] else "exited",
        'index .Config.Labels "gpu-clusters.dev/image"': there["image"],
    }
    form = call.value("--format")
    if form is None:
        return Answer.out(json.dumps([{"Id": fields[".Id"], "Image": there["image"]}]))
    for name, value in fields.items():
        form = form.replace(f"{{{{{name}}}}}", value)
    if "{{" in form:
        raise _refused("inspect", f"--format {form}")
    return Answer.out(form)


def _volume(call: Call, to: _Daemon) -> Answer:
    """`docker volume ls --quiet --filter label=…` and `docker volume rm --force NAME…`."""
    match call.words:
        case ["ls"] if call.has("--quiet"):
            has = clusters_of(call).node(call.machine.name) is not None and to.engine is not None
            return Answer.out(
                "\n".join(_VOLUMES) if has and call.value("--filter") == _OURS else ""
            )
        case ["rm", *names] if call.has("--force"):
            if set(_VOLUMES) & set(names):
                forget_volumes(call)
            return Answer()
    raise _refused("volume", " ".join(call.words))


def _rm(call: Call, to: _Daemon) -> Answer:
    """`docker rm --force NAME`."""
    if to.engine is not None and call.words == [_NODE]:
        usernetes_container.delete(call.machine, to.engine.account)
    return Answer()


def _exec(call: Call, to: _Daemon) -> Said:
    """`docker exec usernetes-node COMMAND…`."""
    name, program_, *words = [*call.words, "", ""][: max(2, len(call.words))]
    if not _container(call, to, name)["running"]:
        raise RefusedError(f"Error response from daemon: container {name} is not running")
    with clusters_of(call).change() as known:
        node = known["nodes"][call.machine.name]
        usernetes_container.settle(call.machine, node, call.faults)
        act = _PROGRAMS.get(program_)
        if act is not None:
            return act(call, node, words)
        if program_ in ("kubectl", "kubeadm"):
            return usernetes_kubectl.run(call, known, program_, words)
    text = f'exec: "{program_}": executable file not found in $PATH'
    raise RefusedError(f"OCI runtime exec failed: {text}", 127)


@dataclass(frozen=True, slots=True)
class _Command:
    act: Callable[[Call, _Daemon], Said]
    flags: str = ""
    values: str = ""


_COMMANDS: Mapping[str, _Command] = {
    "exec": _Command(_exec),
    "info": _Command(_info, values="--format"),
    "inspect": _Command(_inspect, values="--format"),
    "ps": _Command(_ps, "-a -q"),
    "rm": _Command(_rm, "--force"),
    "run": _Command(_run, "--rm", "--network --device --entrypoint"),
    "version": _Command(_version, values="--format"),
    "volume": _Command(_volume, "--quiet --force", "--filter"),
}


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
    del call
    if words != ["config", "dump"]:
        return Answer.error("containerd: only `config dump` on a simulated host", 1)
    runtime = node["default_runtime"]
    return Answer.out(
        f"version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n"
        f"  default_runtime_name = '{runtime}'\n"
    )


def _nvidia_smi(call: Call, node: Object, words: list[str]) -> Said:
    if not node["has_devices"]:
        return Answer.error('exec: "nvidia-smi": executable file not found in $PATH', 127)
    return nvidia_smi.smi(_inside(call, words))


Program = Callable[[Call, Object, list[str]], Said]

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
