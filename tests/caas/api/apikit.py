"""The API in this process: its application, a cluster in memory, an issuer, a clock.

@played
async def test_something(api: Api) -> None:
    answer = await api.post("acme", image="x:1", gpus=1)
    assert answer.status_code == 201
"""

import asyncio
import copy
import functools
import inspect
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from caas.api.app import Condition, create_app
from caas.api.gate import Gate
from caas.api.server import MOST_CONNECTIONS, Certificate, Door, Protocol, Server
from caas.api.tokens import IssuerKeys
from caas.cluster import Cluster, ClusterError
from caas.settings import Settings
from gpuclusters.container_api.container import EVENT
from gpuclusters.core.ports import ObjectKind
from gpuclusters.lease.model import GPU_LEASE, lease_name
from gpuclusters.tenancy.model import CLAIM, TENANCY
from gpuclusters.tenancy.objects import NAMESPACE, NODE, POD, RESOURCE_QUOTA
from tests.caas import fakecluster
from tests.caas.loops import QuickLoop
from tests.fixtures.tables import beside
from tests.fixtures.waiting import PATIENCE_SECONDS, Clock

ISSUER = "https://issuer.example.com"
KEYS = f"{ISSUER}/keys"
GPU = "nvidia.com/pgpu"
IMAGE = "registry.example.com/cuda:12"
NOW = 1_800_000_000.0
CASES = beside(__file__, "cases.yaml")
"""Tables of what is asked and answered."""
KINDS = {
    kind.plural: kind
    for kind in (TENANCY, NAMESPACE, NODE, POD, RESOURCE_QUOTA, GPU_LEASE, CLAIM, EVENT)
}


def settings(
    hosts: Mapping[str, Mapping[str, Any]] | None = None, on_demand: Any = None, **api: Any
) -> Settings:
    """Two hosts of which every partition is on offer; or `hosts`, by name what is otherwise."""
    stated = hosts or {"hgx-01": {}, "hgx-02": {}}
    every = [{**CASES["host"], "name": name, **other} for name, other in stated.items()]
    return Settings.model_validate(
        {
            "cluster": "test",
            "runtimeClass": "kata-qemu-nvidia-gpu",
            "hosts": every,
            "onDemand": on_demand,
            "api": {"issuer": ISSUER, "requestsPerSecond": 1000, "burst": 1000, **api},
        }
    )


def tenancy(tenant: str, *, gpus: int = 4, ready: bool = True, **spec: Any) -> dict[str, Any]:
    """A Tenancy as its controller leaves it."""
    condition = {
        "type": "Ready",
        "status": str(ready),
        "reason": "Enforced" if ready else "QuotaNotEnforced",
        "observedGeneration": 1,
    }
    return {
        "metadata": {"name": tenant, "generation": 1},
        "spec": {
            "tenant": tenant,
            "namespace": f"tenant-{tenant}",
            "gpus": gpus,
            "gpuResource": GPU,
            "sizes": [1, 2, 4, 8],
            "quota": {"name": "tenant", "hard": {f"requests.{GPU}": str(gpus)}},
            **spec,
        },
        "status": {"observedGeneration": 1, "conditions": [condition]},
    }


def node(name: str, *, ready: str = "True", cordoned: bool = False) -> dict[str, Any]:
    """A machine as its kubelet says it is."""
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-22T15:00:00Z"}
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": cordoned},
        "status": {"conditions": [condition]},
    }


def lease(
    host: str, module: int, phase: str = "Free", pod_uid: str | None = None, **status: Any
) -> dict[str, Any]:
    """A GPULease."""
    holder = {"holder": {"podUid": pod_uid}} if pod_uid else {}
    place = {"pci": f"0000:0{module}:00.0", "device": f"gpu{module}"}
    return {
        "metadata": {"name": lease_name(host, module)},
        "spec": {"node": host, "module": module, **place},
        "status": {"phase": phase, **holder, **status},
    }


class FakeCluster(fakecluster.FakeCluster):
    """The tenants acme (4 GPUs) and globex (8) on two machines; pods are counted against their quota."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.down = self.silent = False
        self.lose_answers = 0
        """So many creations are done and then reported as never answered."""
        self.refusal: Exception | None = None
        self.logs: list[bytes | float | ClusterError] = []
        self.logs_asked: list[dict[str, Any]] = []
        self.open_logs = 0
        self.server.before_storing(self._admit)
        for tenant, gpus in (("acme", 4), ("globex", 8)):
            self.put("tenancies", tenancy(tenant, gpus=gpus))
        for host in ("hgx-01", "hgx-02"):
            self.put("nodes", node(host))
            for module in range(1, 9):
                self.put("gpuleases", lease(host, module))

    def put(self, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make or change an object; a tenancy has its namespace."""
        if plural == "tenancies":
            self.put("namespaces", {"metadata": {"name": body["spec"]["namespace"]}})
        return self.server.put(KINDS[plural], body)

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Take an object away."""
        self.server.remove(KINDS[plural], name, namespace)

    @property
    def pods(self) -> list[dict[str, Any]]:
        """All pods."""
        return copy.deepcopy(self.server.of(POD))

    def event(self, pod: dict[str, Any], second: int, reason: str, message: str) -> None:
        """Something happened to a pod."""
        name, where = f"e{second}", pod["metadata"]["namespace"]
        body = {
            "metadata": {"name": name, "namespace": where},
            "involvedObject": {"uid": pod["metadata"]["uid"]},
            "reason": reason,
            "message": message,
            "type": "Normal",
            "count": 1,
            "lastTimestamp": f"2026-11-21T12:00:0{second}Z",
        }
        self.put("events", body)

    async def ask(self, call: str, work: Callable[[], Any]) -> Any:
        self.calls[call] += 1
        if self.silent:
            await asyncio.Event().wait()
        if self.down:
            raise ClusterError("https://192.0.2.9 did not answer", reason="Unreachable")
        if self.refusal and call == "create":
            raise self.refusal
        answer = await super().ask(call, work)
        if self.lose_answers and call == "create":
            self.lose_answers -= 1
            raise ClusterError("no answer", reason="Unreachable")
        return answer

    async def pod_log(self, namespace: str, pod: str, **options: Any) -> AsyncIterator[bytes]:
        self.logs_asked.append({"namespace": namespace, **options})
        self.open_logs += 1
        try:
            for piece in self.logs:
                if isinstance(piece, ClusterError):
                    raise piece
                if isinstance(piece, float):
                    await asyncio.sleep(piece)
                else:
                    yield piece
        finally:
            self.open_logs -= 1

    def _admit(self, kind: ObjectKind, before: Any, body: dict[str, Any]) -> None:
        if kind != POD or before:
            return
        # Its kubelet has to end it.
        body["metadata"]["finalizers"] = ["example.com/kubelet"]
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        (most,) = (
            found["spec"]["gpus"]
            for found in self.server.of(TENANCY)
            if found["spec"]["namespace"] == namespace
        )
        used = sum(map(_gpus, self.server.of(POD, namespace)))
        key, more = f"requests.{GPU}", _gpus(body)
        if used + more > most:
            raise ClusterError(
                f'the API server refused POST with 403: pods "{name}" is forbidden: exceeded '
                f"quota: tenant, requested: {key}={more}, used: {key}={used}, "
                f"limited: {key}={most}",
                status=403,
                reason="Forbidden",
            )


def _gpus(pod: Mapping[str, Any]) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"][GPU])


class FakeIssuer:
    """Signs tokens; `documents` are what it publishes, an exception in them is raised."""

    def __init__(self) -> None:
        self.clock = Clock(NOW)
        self.private: dict[str, tuple[str, Any]] = {}
        self.asked: Counter[str] = Counter()
        self.documents: dict[str, Any] = {
            f"{ISSUER}/.well-known/openid-configuration": {"issuer": ISSUER, "jwks_uri": KEYS},
            KEYS: {"keys": []},
        }
        self.add("one")

    def add(self, kid: str, algorithm: str = "ES256", bits: int = 2048) -> None:
        """A new key, published."""
        made: dict[str, Callable[[], Any]] = {
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "RS256": lambda: rsa.generate_private_key(65537, bits),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }
        key = made[algorithm]()
        self.private[kid] = (algorithm, key)
        public = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
        self.documents[KEYS]["keys"].append({**public, "kid": kid, "use": "sig"})

    async def fetch(self, url: str) -> Any:
        self.asked[url] += 1
        await asyncio.sleep(0)
        answer = self.documents[url]
        if isinstance(answer, Exception):
            raise answer
        return copy.deepcopy(answer)

    def token(self, tenant: Any, kid: str = "one", headers: Any = None, **claims: Any) -> str:
        """A token that is good unless `claims` make it otherwise; None takes a claim away."""
        now = int(self.clock())
        meant = {"iss": ISSUER, "aud": "gpu-clusters", "iat": now, "exp": now + 600}
        said = {**meant, "tenant": tenant, **claims}
        algorithm, key = self.private[kid]
        return jwt.encode(
            {name: value for name, value in said.items() if value is not None},
            key,
            algorithm=algorithm,
            headers={"kid": kid, **(headers or {})},
        )

    def bearer(self, tenant: Any, **claims: Any) -> dict[str, str]:
        """The header with a token."""
        return {"Authorization": f"Bearer {self.token(tenant, **claims)}"}


@dataclass
class Api:
    """The API, with what it talks to."""

    app: Gate
    cluster: FakeCluster
    issuer: FakeIssuer
    client: httpx.AsyncClient
    condition: Condition
    stop: Callable[[], None] = lambda: None
    """Tell the server to stop, where there is one."""

    async def call(self, tenant: Any, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**self.issuer.bearer(tenant), **options.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **options)

    async def get(self, tenant: Any, path: str, **options: Any) -> httpx.Response:
        return await self.call(tenant, "GET", path, **options)

    async def post(self, tenant: str, *, key: str | None = None, **body: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        body = {"image": IMAGE, "gpus": 1, **body}
        return await self.call(tenant, "POST", "/v1/containers", json=body, headers=headers)

    async def made(self, tenant: str = "acme", **body: Any) -> str:
        """The id of a new container."""
        return str((await self.post(tenant, **body)).json()["id"])

    async def become(self, container: str, phase: str, state: dict[str, Any]) -> None:
        """It has its GPUs, and its kubelet says this of it."""
        (pod,) = (pod for pod in self.cluster.pods if pod["metadata"]["name"] == container)
        pod["spec"].pop("schedulingGates", None)
        main = {"name": "main", "state": state}
        pod["status"] = {"phase": phase, "containerStatuses": [main]}
        await self.happens("pods", pod)

    async def started(self, tenant: str = "acme") -> str:
        """The id of a container that runs."""
        made = await self.made(tenant)
        await self.become(made, "Running", {"running": {}})
        return made

    async def delete(self, tenant: str, container: str) -> httpx.Response:
        return await self.call(tenant, "DELETE", f"/v1/containers/{container}")

    async def happens(self, plural: str, *bodies: dict[str, Any]) -> None:
        """Objects of the cluster change, and the API hears of it."""
        for body in bodies:
            self.cluster.put(plural, body)
        await self.settle()

    async def settle(self) -> None:
        """Let what was told by the cluster be heard."""
        for _ in range(20):
            await asyncio.sleep(0)


def kind(answer: httpx.Response) -> str:
    """Status and short name of a problem, or the status alone."""
    if answer.status_code < 400:
        return str(answer.status_code)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["requestId"] == answer.headers["x-request-id"]
    return f"{answer.status_code} {said['type'].rsplit('/', 1)[1]}"


class Patient(Protocol):
    """Waits for headers as long as anybody waits for anything here."""

    header_seconds = PATIENCE_SECONDS


Test = Callable[..., Awaitable[None]]


def playing(cluster: Callable[[], FakeCluster] = FakeCluster, **given: Any) -> Any:
    """A test against the API with these options of `served`; its first parameter is the API.

    It must leave no task behind. Its loop's time passes only while all wait, however slow the machine is.
    """

    def decorate(test: Test) -> Callable[..., None]:
        async def act(others: Mapping[str, Any]) -> None:
            async with served(cluster(), **given) as running:
                await test(running, **others)
            # What was told to end takes some turns for it.
            for _ in range(100):
                await asyncio.sleep(0)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left

        @functools.wraps(test)
        def run(**others: Any) -> None:
            with asyncio.Runner(loop_factory=QuickLoop) as runner:
                runner.run(act(others))

        _, *parameters = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


played = playing()


@asynccontextmanager
async def served(
    cluster: Any = None,
    issuer: FakeIssuer | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    living: bool = True,
    **api: Any,
) -> AsyncIterator[Api]:
    """The application with these settings, over a cluster; `living` where no server starts it."""
    cluster, issuer = cluster or FakeCluster(), issuer or FakeIssuer()
    wanted = settings(**api)
    keys = IssuerKeys(wanted.api, issuer.clock, issuer.fetch)
    program = create_app(
        wanted, cast(Cluster, cluster), clock=issuer.clock, keys=keys, **(options or {})
    )
    app = program.gate
    inner = cast(Any, app.application)
    transport = httpx.ASGITransport(cast(Any, app), raise_app_exceptions=False)
    async with (
        inner.router.lifespan_context(inner) if living else nullcontext(),
        httpx.AsyncClient(transport=transport, base_url="http://api") as client,
    ):
        running = Api(app, cluster, issuer, client, program.condition)
        await running.settle()
        yield running


@asynccontextmanager
async def listening(
    cluster: FakeCluster | None = None,
    issuer: FakeIssuer | None = None,
    options: Mapping[str, Any] | None = None,
    protocol: type[Protocol] = Patient,
    door: Mapping[str, Any] | None = None,
    certificate: Certificate | None = None,
    **api: Any,
) -> AsyncIterator[tuple[Api, int]]:
    """The API behind its real server, on a port of loopback; its deadlines are those of a busy machine.

    One address may have as many connections as all, and may stall for as long as anybody waits for anything,
    unless `door` says otherwise.
    """
    patient = {"kube_seconds": PATIENCE_SECONDS, "body_seconds": PATIENCE_SECONDS}
    bounds = {
        "most_per_address": MOST_CONNECTIONS,
        "stall_seconds": PATIENCE_SECONDS,
        "tells": certificate is None,
        **(door or {}),
    }
    async with served(
        cluster, issuer, {**patient, **(options or {})}, living=False, **api
    ) as running:
        with Door(socket.AF_INET, **bounds) as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            server = Server(
                running.app,
                proxies=bounds.get("proxies", ()),
                certificate=certificate,
                protocol=protocol,
            )
            server.config.timeout_graceful_shutdown = PATIENCE_SECONDS
            running.stop = lambda: setattr(server, "should_exit", True)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                if task.done():
                    await task
                await asyncio.sleep(0.005)
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}",
                limits=httpx.Limits(max_connections=None),
                timeout=PATIENCE_SECONDS,
                trust_env=False,
            ) as client:
                running.client = client
                yield running, port
            running.stop()
            await task
