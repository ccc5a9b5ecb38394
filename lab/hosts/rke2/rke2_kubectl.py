"""Stand-in for the kubectl that RKE2 brings: the few calls that this program makes, on a server.

Output and exit status after kubectl's own (`--ignore-not-found`, `NotFound` as exit 1). On a host that is one
machine with a real node the real kubectl asks the lab's API server, and pods are really evicted; what RKE2's
own records say of a node is kept beside it, and a node tells the release of RKE2 that is installed there.
"""

from __future__ import annotations

import asyncio
import json

from lab.hosts.call import Answer, Call
from lab.hosts.rke2 import rke2_real
from lab.hosts.rke2.rke2_cluster import CONTROL_PLANE, Clusters, Object, parse_taint

_NO_CONNECTION = (
    "The connection to the server 127.0.0.1:6443 was refused"
    " - did you specify the right host or port?"
)


async def run(call: Call) -> Answer:
    clusters = Clusters(call.machine.folder.path.parent)
    cluster = clusters.of_host(call.machine.name)
    if cluster is None or not clusters.is_up(call.machine.name):
        return Answer.error(_NO_CONNECTION, 1)
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
    words = [word for word in call.arguments if not word.startswith("-")]
    flags = [word for word in call.arguments if word.startswith("--")]
    match call.arguments:
        case [*_, "get", "--raw=/readyz"]:
            return Answer.out("ok")
        case [*_, "--output", "json"]:
            words.remove("json")
    match words:
        case ["get", "nodes", *_]:
            items = [_shown(clusters, cluster, name) for name in sorted(cluster["nodes"])]
            servers = [one for one in items if CONTROL_PLANE in one["metadata"]["labels"]]
            return Answer.out(json.dumps({"kind": "List", "items": servers}))
        case ["get", "node", name]:
            if name not in cluster["nodes"]:
                return Answer() if "--ignore-not-found" in flags else _absent(name)
            return Answer.out(json.dumps(_shown(clusters, cluster, name)))
        case ["delete", "node", name]:
            cluster["nodes"].pop(name, None)
            host = next((h for h, m in cluster["members"].items() if m["node"] == name), None)
            if host is not None and host != call.machine.name:
                del cluster["members"][host]
            clusters.save(cluster)
            call.machine.note("rke2", action="deleted", node=name)
            return Answer.out(f'node "{name}" deleted')
        case ["delete", "secret", "kube-system", name]:
            cluster["passwords"].pop(name.removesuffix(".node-password.rke2"), None)
            clusters.save(cluster)
            return Answer()
    return _change(call, clusters, cluster, words)


def _change(call: Call, clusters: Clusters, cluster: Object, words: list[str]) -> Answer:
    match words:
        case ["label" | "annotate" | "taint" as verb, "node", name, *changes]:
            pass
        case ["cordon" | "uncordon" | "drain" as verb, name]:
            changes = []
        case _:
            return Answer.error(f"kubectl: not on a simulated host: {' '.join(call.arguments)}", 1)
    node = cluster["nodes"].get(name)
    if node is None:
        return _absent(name)
    if verb in ("label", "annotate"):
        values = node["metadata"]["labels" if verb == "label" else "annotations"]
        for change in changes:
            key, separator, value = change.partition("=")
            if separator:
                values[key] = value
            else:
                values.pop(key.removesuffix("-"), None)
    elif verb == "taint":
        for change in changes:
            taint = parse_taint(change.removesuffix("-"))
            kept = [t for t in node["spec"]["taints"] if not _same_slot(t, taint)]
            node["spec"]["taints"] = kept if change.endswith("-") else [*kept, taint]
    else:
        node["spec"]["unschedulable"] = verb != "uncordon"
    clusters.save(cluster)
    call.machine.note("rke2", action=verb, node=name)
    return Answer.out(f"node/{name} changed by {verb}")


def _same_slot(one: Object, other: Object) -> bool:
    """A node has one taint of a key and an effect."""
    return bool(one["key"] == other["key"] and one["effect"] == other["effect"])


def _shown(clusters: Clusters, cluster: Object, name: str) -> Object:
    """The node with the status that its host gives it now."""
    node: Object = cluster["nodes"][name]
    host = node["metadata"]["annotations"]["gpu-clusters.dev/host"]
    member = cluster["members"].get(host, {})
    is_ready = member and clusters.is_up(host) and clusters.is_played(name)
    ready = "True" if is_ready else "Unknown"
    node["status"] = {
        "conditions": [{"type": "Ready", "status": ready}],
        "nodeInfo": {
            "kubeletVersion": member.get("version", ""),
            "containerRuntimeVersion": "containerd://2.3.3-k3s1",
        },
    }
    return node


def _absent(name: str) -> Answer:
    return Answer.error(f'Error from server (NotFound): nodes "{name}" not found', 1)
