"""Tenants, programs and machines beside real nodes, whose pods Cilium lets through or not."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import psutil

from gpuclusters.fabric.answers import FABRIC_MANAGER_PORT
from gpuclusters.tenancy import isolation, programs
from gpuclusters.tenancy.isolation import TENANT_LABEL, Network
from gpuclusters.tenancy.model import Egress
from gpuclusters.tenancy.programs import Accounts, Place, Ports, Program, Reach
from lab import nodes, tools
from lab.control_plane.commands import POD_RANGE, SERVICE_RANGE
from lab.nodes import NodesStatus
from lab.nodes.network import API_SERVICE
from tests.cilium import network as cilium
from tests.fixtures.tables import beside
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import RealLab, is_ready

_READ = beside(__file__, "policy_world.yaml")
WEB = 8000
FABRIC_MANAGER = FABRIC_MANAGER_PORT
KUBELET = 10250
METADATA = "169.254.169.254"
PUBLIC = "203.0.113.9"
_FIRST_BESIDE = 200
"""Addresses of the nodes' network from here on are given to nobody by the lab itself."""
NAMED: dict[str, str] = {key: name for key, name in _READ["beside"].items() if name}
ACCOUNTS = Accounts("system-system")
"""Namespaces of the cluster's own programs."""
PROGRAMS = {str(program): ACCOUNTS.namespace(program) for program in Program}
"""Their namespaces."""
_PORTS = {
    program: Ports(serves=WEB if program is Program.API else None, metrics=FABRIC_MANAGER)
    for program in Program
}
"""At which the pods that stand for them answer."""
# All at once: who is refused waits until it gives up.
_TRIES = (
    "for t in $@; do (nc -w 4 ${t%:*} ${t#*:} </dev/null >/dev/null 2>&1 && echo $t) & done; wait"
)
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class World:
    """The lab, and addresses in it: of pods and Services by `place/name`, of others by their name."""

    real: RealLab
    status: NodesStatus
    addresses: dict[str, str]

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

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Create or change objects."""
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self.real.kubectl("apply", "--server-side", "-f", "-", given=given)

    def policies(self) -> Iterator[Object]:
        """Those that we write: of all tenants, of each that has one, of each program."""
        at = self.addresses
        # The lab's API server has an address of the services' range, where no cluster has one.
        services = IPv4Network(SERVICE_RANGE).address_exclude(
            IPv4Network(f"{API_SERVICE}/29", strict=False)
        )
        network = Network(
            infrastructure_cidrs=(f"{at['bmc']}/32", POD_RANGE, *map(str, services)),
            storage_cidrs=(f"{at['files']}/32",),
        )
        yield policy("", isolation.BASELINE, spec=isolation.baseline(network))
        for tenant, told in _READ["egress"].items():
            if told is not None:
                servers = [f"{at[key]}/32" for key in told.get("nfs_cidrs", ())]
                allowed = Egress.model_validate(told | {"nfs_cidrs": servers})
                rules = isolation.network_policy(allowed, network, tenant)
                yield policy(tenant, isolation.POLICY, specs=rules)
        # Two nodes and a machine that is none, BMCs, an issuer.
        nodes_of_it = [Place(node.address, KUBELET) for node in self.status.nodes.values()]
        reach = Reach(
            machines=[*nodes_of_it, Place(at["files"], 2049)],
            management_controllers=[Place(at["bmc"], 443), Place(NAMED["deep"], 443)],
            issuer=[Place.of(f"https://{NAMED['named']}/realms/main")],
        )
        closed = programs.network_policies(reach, _PORTS, monitored=True)
        for program, spec in closed.items():
            yield policy(ACCOUNTS.namespace(program), programs.POLICY, spec=spec)

    @contextmanager
    def served(self, folder: Path) -> Iterator[None]:
        """What is beside the nodes answers HTTP; nodes find a metadata service, as those of a cloud do,
        and one address of the internet."""
        at = self.addresses
        ports = {at["files"]: [2049, WEB], METADATA: [80], PUBLIC: [443, 22]}
        ports |= {at[key]: [443] for key in NAMED}
        httpd = [str(tools.ensure(["busybox"])["busybox"]), "httpd", "-f", "-h", str(folder)]
        enter = self._beside()
        (folder / "index.html").write_text("beside\n")
        with ExitStack() as stack:
            for where, its in ports.items():
                _run(*enter, "ip", "address", "add", f"{where}/32", "dev", "bridge")
                for port in its:
                    command = [*enter, *httpd, "-p", f"{where}:{port}"]
                    stack.callback(stack.enter_context(subprocess.Popen(command)).kill)
            for node in self.status.nodes.values():
                for where in (METADATA, PUBLIC):
                    add = ["ip", "route", "add", where, "via", at["files"]]
                    _run(*nodes.command_in(node, add))
            yield

    def _beside(self) -> list[str]:
        """The start of a command that runs in the network of the bridge."""
        for child in psutil.Process(self.status.pid).children():
            # Others end meanwhile.
            try:
                if child.name() == "cat":
                    return ["nsenter", f"--net=/proc/{child.pid}/ns/net", "--"]
            except psutil.NoSuchProcess:
                continue
        raise AssertionError("nobody holds the network of the bridge")


def fill(real: RealLab, status: NodesStatus) -> World:
    """Tenants, their policies, then their pods; and a namespace that is no tenant's."""
    subnet = ipaddress.ip_network(status.subnet)
    at = {key: str(subnet[_FIRST_BESIDE + n]) for n, key in enumerate(_READ["beside"])}
    at |= {"metadata": METADATA, "public": PUBLIC}
    at |= {f"node-{n}": node.address for n, node in enumerate(status.nodes.values(), 1)}
    world = World(real, status, at)
    _name(real, at)
    tenants = _READ["egress"]
    everywhere = [{"endpointSelector": {}, "egress": [{"toEntities": ["all"]}]}]
    places = ("plain", *tenants, *ACCOUNTS.namespaces)
    for place in places:
        labels = {TENANT_LABEL: place} if place in tenants else {}
        metadata = {"name": place, "labels": labels}
        world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    world.apply(*world.policies(), policy("wide", "somebody-allows-all", specs=everywhere))
    accounts = ("get", "serviceaccount", "default", "--ignore-not-found", "--output=name")
    for place in places:
        eventually(
            lambda p=place: bool(real.kubectl(*accounts, f"-n{p}")), f"{place} has an account"
        )
    world.apply(*(one for place in places for one in _pods(real, place)))
    eventually(lambda: _found(real, places, at), "all pods are Ready", 300)
    for name, place in PROGRAMS.items():
        at |= {f"{name}/{pod}": at[f"{place}/{pod}"] for pod in ("one", "two")}
    return world


def policy(namespace: str, name: str, **rules: Any) -> Object:
    """One of Cilium's, of a namespace or of all."""
    kind = "CiliumNetworkPolicy" if namespace else "CiliumClusterwideNetworkPolicy"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "cilium.io/v2", "kind": kind, "metadata": metadata, **rules}


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _pods(real: RealLab, place: str) -> Iterator[Object]:
    """A pod on each node and a Service before the first."""
    yield _READ["service"] | {"metadata": {"name": "web", "namespace": place}}
    for name, node in zip(("one", "two"), real.names, strict=True):
        # The second of each calls itself a collector of metrics.
        collects = {"app.kubernetes.io/name": "prometheus"} if name == "two" else {}
        metadata = {"name": name, "namespace": place, "labels": {"app": name} | collects}
        spec = _READ["pod"]["spec"] | {"nodeName": node}
        yield _READ["pod"] | {"metadata": metadata, "spec": spec}


def _found(real: RealLab, places: Sequence[str], addresses: dict[str, str]) -> bool:
    """Whether all pods are Ready; notes addresses of pods and Services."""
    answer = real.kubectl("get", "pods,services", "--all-namespaces", "--output=json")
    objects = [o for o in json.loads(answer)["items"] if o["metadata"]["namespace"] in places]
    for one in objects:
        name = f"{one['metadata']['namespace']}/{one['metadata']['name']}"
        addresses[name] = one["spec"].get("clusterIP") or one["status"].get("podIP", "")
    pods = [one for one in objects if one["kind"] == "Pod"]
    return len(pods) == 2 * len(places) and all(is_ready(pod) for pod in pods)


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
