"""Stand-in for the kubectl that RKE2 brings: the few calls that this program makes, on a server.

Output and exit status after kubectl's own (`--ignore-not-found`, `NotFound` as exit 1). On a host that is one
machine with a real node the real kubectl asks the lab's API server, and pods are really evicted; what RKE2's
own records say of a node is kept beside it, and a node tells the release of RKE2 that is installed there.
"""

import asyncio
import json

from lab.hosts import kubectl
from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.kubectl import Object, is_played
from lab.hosts.program import program
from lab.hosts.rke2 import rke2_real
from lab.hosts.rke2.rke2_cluster import CONTROL_PLANE, KUBECTL, Clusters


@program(KUBECTL, unknown=None)
async def rke2_kubectl(call: Call) -> Answer:
    clusters = Clusters(call.machine.folder.path.parent)
    cluster = clusters.of_host(call.machine.name)
    if cluster is None or not clusters.is_up(call.machine.name):
        raise RefusedError(kubectl.REFUSED)
    kubeconfig = clusters.folder.parent / "kubeconfig"
    if rke2_real.Rke2Node.of(call.machine) is None or not kubeconfig.exists():
        return _played(call, clusters, cluster)
    done = await asyncio.to_thread(rke2_real.kubectl, kubeconfig, call.arguments)
    if done.returncode != 0:
        return Answer(done.returncode, done.stdout, done.stderr)
    if "get" in call.arguments:
        return Answer.out(_of_cluster(done.stdout, cluster))
    # It may have taken its time: what others wrote meanwhile counts.
    played = _played(call, clusters, clusters.of_host(call.machine.name) or cluster)
    return Answer(played.exit, done.stdout, done.stderr + played.stderr)


def _of_cluster(text: str, cluster: Object) -> str:
    """An answer of the API server without nodes of other clusters, and with releases of RKE2."""
    if not text.startswith("{"):
        return text
    body = json.loads(text)
    if body["kind"] == "List":
        body["items"] = [n for n in body["items"] if n["metadata"]["name"] in cluster["nodes"]]
    versions = {member["node"]: member["version"] for member in cluster["members"].values()}
    for node in body.get("items", [body]):
        if node["metadata"]["name"] in versions:
            node["status"]["nodeInfo"]["kubeletVersion"] = versions[node["metadata"]["name"]]
    return json.dumps(body)


def _played(call: Call, clusters: Clusters, cluster: Object) -> Answer:
    """From RKE2's own records, and into them."""
    call = kubectl.read(call, call.arguments)
    match call.words:
        case ["get", "nodes"]:
            items = [_shown(clusters, cluster, name) for name in sorted(cluster["nodes"])]
            servers = [one for one in items if CONTROL_PLANE in one["metadata"]["labels"]]
            return Answer.out(json.dumps({"kind": "List", "items": servers}))
        case ["delete", "secret", name]:
            cluster["passwords"].pop(name.removesuffix(".node-password.rke2"), None)
            clusters.save(cluster)
            return Answer()
        case ["get", "node", name] if name in cluster["nodes"]:
            _shown(clusters, cluster, name)
        case ["delete", "node", name]:
            host = next((h for h, m in cluster["members"].items() if m["node"] == name), None)
            if host is not None and host != call.machine.name:
                del cluster["members"][host]
    answer = kubectl.on_nodes(call, cluster["nodes"], of="rke2")
    if call.verb != "get":
        clusters.save(cluster)
    return answer


def _shown(clusters: Clusters, cluster: Object, name: str) -> Object:
    """The node with the status that its host gives it now."""
    node: Object = cluster["nodes"][name]
    host = node["metadata"]["annotations"]["gpu-clusters.dev/host"]
    member = cluster["members"].get(host, {})
    is_ready = member and clusters.is_up(host) and is_played(clusters.folder, name)
    ready = "True" if is_ready else "Unknown"
    node["status"] = {
        "conditions": [{"type": "Ready", "status": ready}],
        "nodeInfo": {
            "kubeletVersion": member.get("version", ""),
            "containerRuntimeVersion": "containerd://2.3.3-k3s1",
        },
    }
    return node
