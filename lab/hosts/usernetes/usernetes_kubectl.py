"""Stand-ins for kubectl and kubeadm in the node of a control plane: the few calls that this program makes.

Output and exit status after kubectl's own (`--ignore-not-found`, `NotFound` as exit 1, no change of an
annotation without `--overwrite`) and kubeadm's (`token create --print-join-command`).
"""

import hashlib
import json
import secrets
import string
import time

from lab.hosts import kubectl
from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import CidrAssignmentFails, FlannelStartsEarly
from lab.hosts.faults import read as faults_of
from lab.hosts.folder import HostsFolder
from lab.hosts.kubectl import Object
from lab.hosts.usernetes.usernetes_cluster import HOST, HOST_IP, PUBLIC_IP, Clusters

_ANNOUNCED = "flannel.alpha.coreos.com/public-ip"
_ALPHABET = string.ascii_lowercase + string.digits


def clusters_of(call: Call) -> Clusters:
    return Clusters(call.machine.folder.path.parent)


def run(call: Call, known: Object, program: str, arguments: list[str]) -> Answer:
    """`known`: all clusters, which these commands may change."""
    mine = known["clusters"].get(known["nodes"][call.machine.name]["cluster"])
    if mine is None or mine["host"] != call.machine.name:
        raise RefusedError(kubectl.REFUSED)
    if program == "kubeadm":
        return _kubeadm(mine, arguments)
    _play(clusters_of(call), known, mine)
    return _kubectl(kubectl.read(call, arguments), known, mine)


def _kubeadm(cluster: Object, arguments: list[str]) -> Answer:
    match arguments:
        case ["token", "create", "--ttl", ttl, "--print-join-command"]:
            token = f"{_random(6)}.{_random(16)}"
            minutes = float(ttl.removesuffix("m"))
            cluster["tokens"][token] = time.time() + 60 * minutes
            endpoint = f"{_first(cluster)}:{cluster['ports']['api']}"
            digest = hashlib.sha256(cluster["ca"].encode()).hexdigest()
            return Answer.out(
                f"kubeadm join {endpoint} --token {token} "
                f"--discovery-token-ca-cert-hash sha256:{digest} "
            )
        case ["token", "delete", token_id]:
            for token in [one for one in cluster["tokens"] if one.startswith(f"{token_id}.")]:
                del cluster["tokens"][token]
            return Answer.out(f'bootstrap token "{token_id}" deleted')
    return Answer.error(f"kubeadm: not on a simulated host: {' '.join(arguments)}", 1)


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _first(cluster: Object) -> str:
    """Name of the control plane's node, which the join command names."""
    for name, node in cluster["nodes"].items():
        if node["metadata"]["annotations"][HOST] == cluster["host"]:
            return str(name)
    return str(cluster["host"])


def _play(clusters: Clusters, known: Object, cluster: Object) -> None:
    """Give the nodes the status that their hosts give them now."""
    for name, node in cluster["nodes"].items():
        host = node["metadata"]["annotations"][HOST]
        mine = known["nodes"].get(host, {})
        faults = faults_of(HostsFolder(clusters.folder).host(host))
        late = faults.first(CidrAssignmentFails)
        waits = late is not None and time.time() - mine.get("kubelet_since", 0) < late.seconds
        belongs = mine.get("cluster") == cluster["id"]
        runs = belongs and clusters.runs(host, mine)
        network = cluster["cni"] and not waits
        ready = runs and network and kubectl.is_played(clusters.folder, name)
        message = (
            "kubelet is posting ready status" if ready else "Kubelet stopped posting node status."
        )
        if runs and not network:
            message = "container runtime network not ready: cni plugin not initialized"
        node["waits"] = waits
        node["status"]["conditions"] = [
            {"type": "Ready", "status": "True" if ready else "Unknown", "message": message}
        ]
        node["status"]["nodeInfo"] = {"kubeletVersion": mine.get("kubernetes", "")}
        annotations = node["metadata"]["annotations"]
        if ready and _ANNOUNCED not in annotations and PUBLIC_IP in annotations:
            early = faults.first(FlannelStartsEarly) and not node.get("flannel_restarted")
            inside = mine["environment"]["NODE_IP"]
            annotations[_ANNOUNCED] = inside if early else annotations[PUBLIC_IP]


def _kubectl(call: Call, known: Object, cluster: Object) -> Answer:
    nodes, field = cluster["nodes"], call.value("--field-selector") or ""
    match call.words:
        case ["get"] if call.value("--raw") == "/version":
            version = known["nodes"][call.machine.name]["kubernetes"]
            return Answer.out(json.dumps({"gitVersion": version}))
        case ["get", "nodes"]:
            return Answer.out("".join(map(_line, sorted(nodes), [nodes[n] for n in sorted(nodes)])))
        case ["get", "events"]:
            name = field.partition("involvedObject.name=")[2].partition(",")[0]
            said = "CIDRAssignmentFailed: failed to allocate cidr from cluster cidr\n"
            return Answer.out(said if nodes.get(name, {}).get("waits") else "")
        case ["delete", "pod"]:
            node = nodes[field.partition("spec.nodeName=")[2]]
            node["flannel_restarted"] = True
            node["metadata"]["annotations"].pop(_ANNOUNCED, None)
            return Answer.out("pod deleted")
    return kubectl.on_nodes(call, nodes, of="usernetes")


def _line(name: str, node: Object) -> str:
    metadata = node["metadata"]
    return f"{name} {metadata['labels'].get(HOST_IP, '')} {metadata['annotations'].get(PUBLIC_IP, '')}\n"
