"""Stand-in for `make` in a checkout of Usernetes: its targets, and what they need to be told.

After the Makefile and compose file of gen2 and gen3. Stricter in one thing: every variable has to be stated,
where upstream would find a value of its own on each host.
"""

import re
import secrets
import time
from collections.abc import Mapping

import yaml

from lab.hosts import accounts, certificates
from lab.hosts.accounts import Account
from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import NodeImageFails, NodeJoinFails, NodeStartFails, PortTaken, SyncFails
from lab.hosts.kubectl import Object
from lab.hosts.machine import FILES
from lab.hosts.program import program
from lab.hosts.usernetes import rootless, usernetes_container, usernetes_pki
from lab.hosts.usernetes.usernetes_cluster import new_node, sync
from lab.hosts.usernetes.usernetes_kubectl import clusters_of

_VARIABLES = (
    *("COMPOSE", "COMPOSE_PROJECT_NAME", "CONTAINER_ENGINE", "CONTAINER_ENGINE_TYPE", "HOSTNAME"),
    *("HOST_IP", "NODE_NAME", "NODE_SUBNET", "NODE_IP", "PORT_ETCD", "PORT_KUBELET"),
    *("PORT_FLANNEL", "PORT_KUBE_APISERVER", "GPU_OVERLAY", "GPU_CLUSTERS_IMAGE", "NODE_MTU"),
    "NVIDIA_CONTAINER_TOOLKIT_VERSION",
)
_OF_GEN3 = ("CNI", "POD_SUBNET", "SERVICE_SUBNET", "PORT_CALICO", "PORT_CALICO_TYPHA")
_ERROR = 2
_MESSAGES = yaml.safe_load((FILES / "usernetes/messages.yaml").read_text())
BUILD_FAILS: Mapping[str, str] = _MESSAGES["build"]
START_FAILS: Mapping[str, str] = _MESSAGES["start"]
JOIN_FAILS: Mapping[str, str] = _MESSAGES["join"]


@program("make", of="make", flags="--no-print-directory", values="-C", unknown_exit=_ERROR)
def make(call: Call) -> Answer:
    folder, target = call.value("-C"), call.verb
    if folder is None or len(call.words) != 1:
        raise RefusedError("make: on a simulated host: -C FOLDER and one target", _ERROR)
    if call.machine.read_text(f"{folder}/Makefile") is None:
        return Answer.error(f"make: *** {folder}: No such file or directory.  Stop.", _ERROR)
    account = _account(call)
    if account is None:
        return _failed(target, "no rootless daemon: DOCKER_HOST is not an account's")
    tag = _tag(call, folder)
    needed = (*_VARIABLES, *(_OF_GEN3 if tag.startswith("gen3") else ()))
    missing = [name for name in needed if not call.environment.get(name)]
    if missing:
        return _failed(target, f"upstream would choose by itself: {', '.join(missing)}")
    if not rootless.engine(call.machine, account, call.faults).running:
        socket = call.environment["DOCKER_HOST"]
        return _failed(target, f"Cannot connect to the Docker daemon at {socket}")
    act = _TARGETS.get(target)
    if act is None or (target == "install-cni" and not tag.startswith("gen3")):
        text = f"make: *** No rule to make target '{target}'.  Stop."
        return Answer.error(text, _ERROR)
    problem = act(call, account, folder)
    call.machine.note("usernetes", target=target, failed=problem)
    return Answer.out(f"{target}: done") if problem is None else _failed(target, problem)


def _failed(target: str, problem: str) -> Answer:
    return Answer.error(f"{problem}\nmake: *** [Makefile:100: {target}] Error 1", _ERROR)


def _account(call: Call) -> Account | None:
    uid = call.environment.get("DOCKER_HOST", "").removeprefix("unix:///run/user/")
    number = uid.partition("/")[0]
    return accounts.by_uid(call.machine, int(number)) if number.isdecimal() else None


def _tag(call: Call, folder: str) -> str:
    text = call.machine.read_text(f"{folder}/Dockerfile") or ""
    found = re.search(r"^# (gen\S+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _up(call: Call, account: Account, folder: str) -> str | None:
    """`docker compose up --build -d`."""
    environment = call.environment
    problem = _overlay_problem(call, folder) or _build_problem(call)
    if problem is not None:
        return problem
    image = environment["GPU_CLUSTERS_IMAGE"]
    there = usernetes_container.container(call.machine, account)
    if there is not None and there["image"] == image and there["running"]:
        return None
    problem = _start_problem(call, account)
    if problem is not None:
        return problem
    usernetes_container.create(call.machine, account, image)
    overlay = environment["GPU_OVERLAY"]
    with clusters_of(call).change() as known:
        node = known["nodes"].setdefault(call.machine.name, _new(account))
        node |= {
            "image": image,
            "name": environment["NODE_NAME"],
            "environment": {name: environment[name] for name in _VARIABLES},
            "gpu_script": call.machine.read_text(f"{overlay}/node-gpus.sh") or "",
            "has_devices": "- nvidia.com/gpu=all"
            in (call.machine.read_text(f"{overlay}/compose.yaml") or ""),
            "kubernetes": usernetes_pki.kubernetes(_tag(call, folder)),
            # What the toolkit's package brings; in /etc, which a volume keeps from the first time on.
            "default_runtime": node["default_runtime"],
        }
        usernetes_container.set_up(call.machine, node, call.faults)
    return None


def _overlay_problem(call: Call, folder: str) -> str | None:
    """What compose would say about our overlay."""
    environment = call.environment
    overlay = environment["GPU_OVERLAY"]
    files = re.findall(r"-f (\S+)", environment["COMPOSE"])
    for file in files:
        path = file if file.startswith("/") else f"{folder}/{file}"
        if call.machine.read_text(path) is None:
            return f"open {path}: no such file or directory"
    if f"{overlay}/compose.yaml" not in files:
        return "the compose overlay is not named"
    made = call.machine.read_text(f"{overlay}/Dockerfile") or ""
    if not made.startswith(call.machine.read_text(f"{folder}/Dockerfile") or ""):
        return f"{overlay}/Dockerfile: it does not begin with upstream's"
    if "nvidia-container-toolkit=" not in made:
        return f"{overlay}/Dockerfile: no container toolkit is installed"
    return None


def _build_problem(call: Call) -> str | None:
    """What BuildKit would say about the node image."""
    fault = call.faults.first(NodeImageFails)
    if fault is None:
        return None
    return BUILD_FAILS[fault.why].format(**_told(call))


def _told(call: Call) -> Mapping[str, str]:
    return {"version": call.environment["NVIDIA_CONTAINER_TOOLKIT_VERSION"]}


def _start_problem(call: Call, account: Account) -> str | None:
    """What the daemon would say when it starts the container."""
    fault = call.faults.first(NodeStartFails)
    if fault is not None:
        return START_FAILS[fault.why]
    engine = rootless.engine(call.machine, account, call.faults)
    if "nvidia.com/gpu=all" not in engine.cdi_devices:
        return START_FAILS["cdi-unresolvable"]
    ports = [value for name, value in call.environment.items() if name.startswith("PORT_")]
    for taken in call.faults.all(PortTaken):
        if str(taken.port) in ports:
            return START_FAILS["port-taken"]
    return None


def _new(account: Account) -> Object:
    """The node container's volumes when they are made."""
    return {
        "account": account.name,
        "cluster": "",
        "role": "",
        "conf": [],
        "default_runtime": "runc",
        "cdi_mode": False,
        "gpus": [],
        "names": [],
        "unit": "inactive",
        "journal": "",
        "kubelet_since": 0.0,
    }


def _down(call: Call, account: Account, folder: str) -> str | None:  # noqa: ARG001
    usernetes_container.delete(call.machine, account)
    return None


def _down_v(call: Call, account: Account, folder: str) -> str | None:  # noqa: ARG001
    usernetes_container.delete(call.machine, account)
    forget_volumes(call)
    return None


def forget_volumes(call: Call) -> None:
    """What `down -v` or `volume rm` takes away; a control plane's cluster goes with them."""
    host = call.machine.name
    with clusters_of(call).change() as known:
        known["nodes"].pop(host, None)
        mine = [key for key, cluster in known["clusters"].items() if cluster["host"] == host]
        for key in mine:
            del known["clusters"][key]


def _running(call: Call, account: Account) -> Object | None:
    there = usernetes_container.container(call.machine, account)
    return clusters_of(call).node(call.machine.name) if there and there["running"] else None


def _init(call: Call, account: Account, folder: str) -> str | None:  # noqa: ARG001
    node = _running(call, account)
    if node is None:
        return 'service "node" is not running'
    if node["conf"]:
        return (
            "\t[ERROR FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml]: already exists"
        )
    fault = call.faults.first(NodeJoinFails)
    if fault is not None:
        return JOIN_FAILS[fault.why]
    host, environment = call.machine.name, call.environment
    key = f"{host}/{secrets.token_hex(4)}"
    name = environment["NODE_NAME"]
    with clusters_of(call).change() as known:
        known["clusters"][key] = {
            "id": key,
            "host": host,
            "ca": certificates.leaf(f"kubernetes {key}"),
            "ports": {"api": environment["PORT_KUBE_APISERVER"]},
            "tokens": {},
            "cni": False,
            "nodes": {name: new_node(name, host, "control-plane", environment["HOST_IP"])},
        }
        _member(known, call, key, "control-plane")
        # The target ends with sync-external-ip.
        sync(known["clusters"][key])
    return None


def _member(known: Object, call: Call, key: str, role: str) -> None:
    node = known["nodes"][call.machine.name]
    node |= {"cluster": key, "role": role, "kubelet_since": time.time()}
    node["certificate"] = certificates.leaf(node["name"])
    node["conf"] = ["kubelet", "admin"] if role == "control-plane" else ["kubelet"]


def _install(call: Call, account: Account, folder: str) -> str | None:  # noqa: ARG001
    with clusters_of(call).change() as known:
        node = known["nodes"].get(call.machine.name)
        cluster = known["clusters"].get(node["cluster"]) if node else None
        if cluster is None:
            return "The connection to the server was refused"
        cluster["cni"] = True
    return None


def _reset(call: Call, account: Account, folder: str) -> str | None:  # noqa: ARG001
    """`kubeadm reset --force`: the Node stays in the API."""
    host = call.machine.name
    with clusters_of(call).change() as known:
        node = known["nodes"].get(host)
        if node is None:
            return 'service "node" is not running'
        if node["role"] == "control-plane":
            known["clusters"].pop(node["cluster"], None)
        node |= {"cluster": "", "role": "", "conf": []}
    return None


def _sync(call: Call, account: Account, folder: str) -> str | None:  # noqa: ARG001
    if call.faults.first(SyncFails):
        return (
            'error: unable to patch "nodes": the server is currently unable to handle the request'
        )
    with clusters_of(call).change() as known:
        node = known["nodes"].get(call.machine.name)
        cluster = known["clusters"].get(node["cluster"]) if node else None
        if cluster is None:
            return "The connection to the server was refused"
        return sync(cluster)


def _join(call: Call, account: Account, folder: str) -> str | None:
    """`kubeadm join` with what `/usernetes/join-command` says."""
    path = f"{folder}/join-command"
    text = call.machine.read_text(path)
    if text is None:
        return "/bin/bash: /usernetes/join-command: No such file or directory"
    if call.machine.path(path).stat().st_mode & 0o077:
        return "the file with the token can be read by others"
    node = _running(call, account)
    if node is None:
        return 'service "node" is not running'
    if node["conf"]:
        return "\t[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: already exists"
    fault = call.faults.first(NodeJoinFails)
    why = fault.why if fault else ""
    if why and why != "token-expired":
        return JOIN_FAILS[why]
    token, address = re.search(r"token: (\S+)", text), re.search(r'echo "(\S+) ', text)
    if token is None or address is None:
        return "discovery.bootstrapToken: Invalid value"
    found = clusters_of(call).serving_at(address[1])
    if found is None:
        return JOIN_FAILS["port-closed"]
    with clusters_of(call).change() as known:
        cluster = known["clusters"][found["id"]]
        ends = cluster["tokens"].get(token[1], 0.0)
        if ends < time.time() or why == "token-expired":
            return JOIN_FAILS["token-expired"]
        name, host_ip = node["name"], node["environment"]["HOST_IP"]
        cluster["nodes"][name] = new_node(name, call.machine.name, "worker", host_ip)
        _member(known, call, found["id"], "worker")
    return None


_TARGETS = {
    "down": _down,
    "down-v": _down_v,
    "install-cni": _install,
    "install-flannel": _install,
    "kubeadm-init": _init,
    "kubeadm-join": _join,
    "kubeadm-reset": _reset,
    "sync-external-ip": _sync,
    "up": _up,
}
