"""Tenants on two real nodes whose network is Cilium: their policies are those that we write."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from gpuclusters.fabric.answers import FABRIC_MANAGER_PORT
from gpuclusters.tenancy import isolation, programs
from gpuclusters.tenancy.isolation import TENANT_LABEL, Network
from gpuclusters.tenancy.model import Egress
from gpuclusters.tenancy.programs import Accounts, Place, Ports, Program, Reach
from lab import images, nodes
from lab.control_plane.commands import POD_RANGE, SERVICE_RANGE
from lab.nodes import NodesStatus
from lab.nodes.network import API_SERVICE
from tests.cilium import network as cilium
from tests.fixtures.waiting import eventually
from tests.lab.nodes import beside_nodes
from tests.lab.nodes.real_lab import RealLab, is_ready

WEB = 8000
FABRIC_MANAGER = FABRIC_MANAGER_PORT
KUBELET = 10250
METADATA = "169.254.169.254"
_PODS_SECONDS = 300.0
PUBLIC = "203.0.113.9"
BESIDE = ("files", "named", "unnamed", "wild", "deep", "tree", "bmc")
NAMED = {
    "named": "registry.example.com",
    "unnamed": "other.example.com",
    "wild": "a.mirror.example.com",
    "deep": "b.a.mirror.example.com",
    "tree": "c.b.tree.example.com",
    "bmc": "a.rebound.example.com",
}
"""Names of what is beside the nodes, as the cluster's DNS has them."""
_SERVES = (
    "cd /tmp; hostname > index.html; httpd -p 6666 -h /tmp; "
    f"httpd -p 10250 -h /tmp; exec httpd -f -h /tmp -p {WEB}"
)
# All at once: who is refused waits until it gives up.
_TRIES = (
    "for t in $@; do (nc -w 4 ${t%:*} ${t#*:} </dev/null >/dev/null 2>&1 && echo $t) & done; wait"
)


@dataclass(frozen=True, slots=True)
class World:
    """The lab, and addresses in it: of pods and Services by `place/name`, of others by their name."""

    real: RealLab
    status: NodesStatus
    addresses: Mapping[str, str]

    def run_in(self, pod: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod."""
        place, name = pod.split("/")
        return self.real.run_in(PROGRAMS.get(place, place), name, *command)

    def reached(self, pod: str, targets: Sequence[str]) -> set[str]:
        """Those of the targets to which a pod can connect."""
        at = {self.at(target): target for target in targets}
        return {at[one] for one in self.run_in(pod, "sh", "-c", _TRIES, "-", *at).stdout.split()}

    def at(self, target: str) -> str:
        """`host:port` of something, which is named, with a port or without."""
        name, _, port = target.partition(":")
        return f"{self.addresses.get(name, name)}:{port or WEB}"

    def exactly(self, pod: str, opened: Sequence[str], closed: Sequence[str] = ()) -> None:
        """A pod reaches the first, and none of the others while it does."""

        def does() -> bool:
            found = self.reached(pod, [*opened, *closed])
            assert not found & set(closed), pod
            return found == set(opened)

        eventually(does, f"{pod} reaches {', '.join(opened)}")

    def answered(self, pod: str, name: str) -> bool:
        """Whether a pod finds a name."""
        return self.run_in(pod, "nslookup", name).returncode == 0


def network(addresses: Mapping[str, str]) -> Network:
    """The ranges of the operator's own machines."""
    # The lab's API server has an address of the services' range, where no cluster has one.
    services = IPv4Network(SERVICE_RANGE).address_exclude(
        IPv4Network(f"{API_SERVICE}/29", strict=False)
    )
    return Network(
        infrastructure_cidrs=(f"{addresses['bmc']}/32", POD_RANGE, *map(str, services)),
        storage_cidrs=(f"{addresses['files']}/32",),
    )


ACCOUNTS = Accounts("system-system")
"""Namespaces of the cluster's own programs."""
PORTS = {
    program: Ports(serves=WEB if program is Program.API else None, metrics=FABRIC_MANAGER)
    for program in Program
}
"""At which the pods that stand for them answer."""
PROGRAMS = {str(program): ACCOUNTS.namespace(program) for program in Program}
"""Their namespaces."""
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}


def reach(addresses: Mapping[str, str], status: NodesStatus) -> Reach:
    """Whom the programs connect to: two nodes and a machine that is none, BMCs, an issuer."""
    nodes_of_it = [Place(node.address, KUBELET) for node in status.nodes.values()]
    return Reach(
        machines=[*nodes_of_it, Place(addresses["files"], 2049)],
        management_controllers=[Place(addresses["bmc"], 443), Place(NAMED["deep"], 443)],
        issuer=[Place.of(f"https://{NAMED['named']}/realms/main")],
    )


def egress(addresses: Mapping[str, str]) -> dict[str, Egress | None]:
    """What each tenant may reach; one has no policy of its own yet."""
    return {
        "acme": Egress(),
        "zeta": Egress(
            nfs_cidrs=(f"{addresses['files']}/32",),
            fqdns=(
                NAMED["named"],
                "*.mirror.example.com",
                "**.tree.example.com",
                "*.rebound.example.com",
            ),
            api_server=True,
        ),
        "late": None,
        "wide": Egress(),
        "open": Egress(internet=True),
    }


def fill(real: RealLab, status: NodesStatus) -> World:
    """Tenants, their policies, then their pods; and a namespace that is no tenant's."""
    addresses = {
        name: beside_nodes.address(status, number) for number, name in enumerate(BESIDE)
    } | {"metadata": METADATA, "public": PUBLIC}
    for number, node in enumerate(status.nodes.values(), 1):
        addresses[f"node-{number}"] = node.address
    _name(real, addresses)
    made: list[dict[str, Any]] = [
        _policy("", isolation.BASELINE, spec=isolation.baseline(network(addresses)))
    ]
    made.append(_namespace("plain", {}))
    for tenant, allowed in egress(addresses).items():
        made.append(_namespace(tenant, {TENANT_LABEL: tenant}))
        if allowed is not None:
            rules = isolation.network_policy(allowed, network(addresses), tenant)
            made.append(_policy(tenant, isolation.POLICY, specs=rules))
    everywhere = [{"endpointSelector": {}, "egress": [{"toEntities": ["all"]}]}]
    made.append(_policy("wide", "somebody-allows-all", specs=everywhere))
    made += [_namespace(name, {}) for name in ACCOUNTS.namespaces]
    closed = programs.network_policies(reach(addresses, status), PORTS, monitored=True)
    made += [
        _policy(ACCOUNTS.namespace(program), programs.POLICY, spec=spec)
        for program, spec in closed.items()
    ]
    apply(real, *made)
    places = ("plain", *egress(addresses), *ACCOUNTS.namespaces)
    accounts = ("get", "serviceaccount", "default", "--ignore-not-found", "--output=name")
    for place in places:
        eventually(
            lambda p=place: bool(real.kubectl(*accounts, f"-n{p}")), f"{place} has an account"
        )
    apply(real, *(one for place in places for one in _pods(real, place)))
    found = _found(real, places)
    found |= {f"{name}/one": found[f"{place}/one"] for name, place in PROGRAMS.items()}
    found |= {f"{name}/two": found[f"{place}/two"] for name, place in PROGRAMS.items()}
    return World(real, status, addresses | found)


def apply(real: RealLab, *manifests: Mapping[str, Any]) -> None:
    """Create or change objects."""
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    real.kubectl("apply", "--server-side", "-f", "-", given=given)


def lead_out(status: NodesStatus, via: str) -> None:
    """Nodes find a metadata service, as those of a cloud do, and one address of the internet."""
    for node in status.nodes.values():
        for address in (METADATA, PUBLIC):
            line = nodes.command_in(node, ["ip", "route", "add", address, "via", via])
            subprocess.run(line, check=True, capture_output=True)


def _pods(real: RealLab, place: str) -> list[dict[str, Any]]:
    """A pod on each node and a Service before the first; kubelets ask each pod whether it works."""
    made: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": place},
            "spec": {"selector": {"app": "one"}, "ports": [{"port": WEB}]},
        }
    ]
    probe = {"httpGet": {"port": WEB, "path": "/"}, "periodSeconds": 1, "timeoutSeconds": 5}
    container = {
        "name": "c",
        "image": images.BUSYBOX,
        "command": ["sh", "-c", _SERVES],
        "readinessProbe": probe,
    }
    for name, node in zip(("one", "two"), real.names, strict=True):
        spec = {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
        }
        # The second of each calls itself a collector of metrics.
        labels = {"app": name} | (PROMETHEUS if name == "two" else {})
        metadata = {"name": name, "namespace": place, "labels": labels}
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return made


def _found(real: RealLab, places: Collection[str]) -> dict[str, str]:
    """Addresses of pods and Services, as soon as all pods are Ready."""
    found: dict[str, str] = {}

    def ready() -> bool:
        answer = real.kubectl("get", "pods,services", "--all-namespaces", "--output=json")
        objects = [o for o in json.loads(answer)["items"] if o["metadata"]["namespace"] in places]
        for one in objects:
            name = f"{one['metadata']['namespace']}/{one['metadata']['name']}"
            found[name] = one["spec"].get("clusterIP") or one["status"].get("podIP", "")
        pods = [one for one in objects if one["kind"] == "Pod"]
        return len(pods) == 2 * len(places) and all(is_ready(pod) for pod in pods)

    eventually(ready, "all pods are Ready", _PODS_SECONDS)
    return found


def _name(real: RealLab, addresses: Mapping[str, str]) -> None:
    """Give names to what is beside the nodes; those who answer names start anew with them."""
    answers = "".join(
        f'template IN A {name} {{\n  answer "{{{{ .Name }}}} 5 IN A {addresses[key]}"\n}}\n'
        f"template IN AAAA {name} {{\n  rcode NOERROR\n}}\n"
        # The first that fits answers, and a name fits what ends with it.
        for key, name in sorted(NAMED.items(), key=lambda item: -len(item[1]))
    )
    zones = " ".join(NAMED.values())
    corefile = f"{zones} {{\n{answers}}}\n{cilium.COREFILE}"
    patch = json.dumps({"data": {"Corefile": corefile}})
    place = "--namespace=kube-system"
    real.kubectl("patch", "configmap", cilium.CONFIGURATION, place, f"--patch={patch}")
    real.kubectl("rollout", "restart", "deployment/coredns", place)
    real.kubectl("rollout", "status", "deployment/coredns", place, "--timeout=280s")


def _namespace(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _policy(namespace: str, name: str, **rules: Any) -> dict[str, Any]:
    kind = "CiliumNetworkPolicy" if namespace else "CiliumClusterwideNetworkPolicy"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "cilium.io/v2", "kind": kind, "metadata": metadata, **rules}
