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
import json
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from caas.api.app import Condition, create_app
from caas.api.gate import Gate
from caas.api.server import MOST_CONNECTIONS, Certificate, Door, Protocol, Server
from caas.api.tokens import IssuerKeys
from caas.cluster import Cluster, ClusterError, ConflictError, Event
from caas.settings import Settings
from gpuclusters.core.ports import ObjectKind
from gpuclusters.lease.model import GPU_LEASE, lease_name
from tests.caas.loops import QuickLoop

ISSUER = "https://issuer.example.com"
GPU = "nvidia.com/pgpu"
RUNTIME = "kata-qemu-nvidia-gpu"
IMAGE = "registry.example.com/cuda:12"
WHOLE_TABLE = tuple(range(15))
PATIENCE_SECONDS = 120
"""How long what must come is waited for; a busy machine takes its time."""


def settings(
    hosts: Mapping[str, Mapping[str, Any]] | None = None, on_demand: Any = None, **api: Any
) -> Settings:
    """Two hosts of which every partition is on offer; or `hosts`, by name what is otherwise."""
    host = {
        "address": "192.0.2.1",
        "user": "operator",
        "hostKey": "ssh-ed25519 AAAA",
        "baseboard": "hgx-h100",
        "gpus": [{"module": m, "pci": f"0000:0{m}:00.0", "device": f"gpu{m}"} for m in range(1, 9)],
        "partitions": list(WHOLE_TABLE),
        "fabricManager": "192.0.2.2",
    }
    return Settings.model_validate(
        {
            "cluster": "test",
            "runtimeClass": RUNTIME,
            "hosts": [
                {**host, "name": name, **other}
                for name, other in (hosts or {"hgx-01": {}, "hgx-02": {}}).items()
            ],
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


def lease(host: str, module: int, phase: str, pod_uid: str | None = None) -> dict[str, Any]:
    """A GPULease."""
    holder = {"holder": {"podUid": pod_uid}} if pod_uid else {}
    return {
        "metadata": {"name": lease_name(host, module)},
        "spec": {"node": host, "module": module},
        "status": {"phase": phase, **holder},
    }


class FakeCluster:
    """Objects in memory, watched as from a real server; pods are counted against the GPU quota."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        self.calls: Counter[str] = Counter()
        self.down = False
        self.lose_answers = 0
        """So many creations are done and then reported as never answered."""
        self.refusal: ClusterError | None = None
        self.silent = False
        self.logs: list[bytes | float | ClusterError] = []
        self.open_logs = 0
        self._version = 0
        self._watchers: dict[str, list[asyncio.Queue[Event]]] = {}

    def put(self, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make or change an object."""
        self._version += 1
        body = copy.deepcopy(body)
        metadata = body["metadata"]
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata.setdefault("creationTimestamp", f"2026-11-21T12:00:{self._version % 60:02}Z")
        metadata["resourceVersion"] = str(self._version)
        key = (metadata.get("namespace", ""), metadata["name"])
        kind = "MODIFIED" if key in self.objects.setdefault(plural, {}) else "ADDED"
        self.objects[plural][key] = body
        self._tell(plural, Event(cast(Any, kind), copy.deepcopy(body)))
        return copy.deepcopy(body)

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Take an object away."""
        self._version += 1
        body = self.objects[plural].pop((namespace, name))
        body["metadata"]["resourceVersion"] = str(self._version)
        self._tell(plural, Event("DELETED", body))

    @property
    def pods(self) -> list[dict[str, Any]]:
        """All pods."""
        return list(self.objects.get("pods", {}).values())

    async def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        await self._reach("get")
        found = self.objects.get(kind.plural, {}).get((namespace, name))
        return copy.deepcopy(found)

    async def list(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        await self._reach("list")
        uid = fields.partition("=")[2]
        return [
            copy.deepcopy(body)
            for (where, _), body in self.objects.get(kind.plural, {}).items()
            if where == namespace and body["involvedObject"]["uid"] == uid
        ]

    async def create(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        await self._reach("create")
        if self.refusal:
            raise self.refusal
        namespace, name = body["metadata"].get("namespace", ""), body["metadata"]["name"]
        if (namespace, name) in self.objects.get(kind.plural, {}):
            raise ConflictError("it exists", status=409, reason="AlreadyExists")
        self._count(namespace, name, body)
        made = self.put(kind.plural, dict(body))
        if self.lose_answers:
            self.lose_answers -= 1
            raise ClusterError("no answer", reason="Unreachable")
        return made

    async def delete(
        self, kind: ObjectKind, name: str, namespace: str = "", *, uid: str | None = None
    ) -> None:
        await self._reach("delete")
        found = self.objects.get(kind.plural, {}).get((namespace, name))
        if found is None:
            return
        if uid and found["metadata"]["uid"] != uid:
            raise ConflictError("another one", status=409, reason="Conflict")
        ending = copy.deepcopy(found)
        ending["metadata"]["deletionTimestamp"] = "2026-11-21T13:00:00Z"
        self.put(kind.plural, ending)

    async def watch(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[Event]:
        self.calls["watch"] += 1
        queue: asyncio.Queue[Event] = asyncio.Queue()
        items = copy.deepcopy([*self.objects.get(kind.plural, {}).values()])
        for body in items:
            queue.put_nowait(Event("ADDED", body))
        version = {"resourceVersion": str(self._version)}
        queue.put_nowait(Event("SYNC", {"metadata": version, "items": items}))
        watchers = self._watchers.setdefault(kind.plural, [])
        watchers.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            watchers.remove(queue)

    async def pod_log(self, namespace: str, pod: str, **options: Any) -> AsyncIterator[bytes]:
        self.calls["log"] += 1
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

    def _count(self, namespace: str, name: str, body: Mapping[str, Any]) -> None:
        def gpus(pod: Mapping[str, Any]) -> int:
            return int(pod["spec"]["containers"][0]["resources"]["requests"][GPU])

        for found in self.objects.get("tenancies", {}).values():
            if found["spec"]["namespace"] != namespace:
                continue
            key, most = f"requests.{GPU}", found["spec"]["gpus"]
            used = sum(gpus(p) for p in self.pods if p["metadata"]["namespace"] == namespace)
            if used + gpus(body) > most:
                raise ClusterError(
                    f'the API server refused POST with 403: pods "{name}" is forbidden: exceeded '
                    f"quota: tenant, requested: {key}={gpus(body)}, used: {key}={used}, "
                    f"limited: {key}={most}",
                    status=403,
                    reason="Forbidden",
                )

    async def _reach(self, call: str) -> None:
        self.calls[call] += 1
        if self.silent:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        if self.down:
            raise ClusterError("https://192.0.2.9 did not answer", reason="Unreachable")

    def _tell(self, plural: str, event: Event) -> None:
        for queue in self._watchers.get(plural, []):
            queue.put_nowait(event)


@dataclass
class FakeIssuer:
    """Signs tokens; `documents` are what it publishes, an exception in them is raised."""

    private: dict[str, Any] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    algorithms: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.documents[f"{ISSUER}/.well-known/openid-configuration"] = {
            "issuer": ISSUER,
            "jwks_uri": f"{ISSUER}/keys",
        }
        self.documents[f"{ISSUER}/keys"] = {"keys": []}
        self.add("one")

    def add(self, kid: str, algorithm: str = "ES256", bits: int = 2048) -> None:
        """A new key, published."""
        made: dict[str, Callable[[], Any]] = {
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "RS256": lambda: rsa.generate_private_key(65537, bits),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }
        forms: dict[str, Any] = {"ES256": ECAlgorithm, "RS256": RSAAlgorithm, "EdDSA": OKPAlgorithm}
        self.private[kid] = made[algorithm]()
        self.algorithms[kid] = algorithm
        public = json.loads(forms[algorithm].to_jwk(self.private[kid].public_key()))
        self.documents[f"{ISSUER}/keys"]["keys"].append({**public, "kid": kid, "use": "sig"})

    def withdraw(self, kid: str) -> None:
        """It is no longer published."""
        keys = self.documents[f"{ISSUER}/keys"]
        keys["keys"] = [key for key in keys["keys"] if key["kid"] != kid]

    async def fetch(self, url: str) -> Any:
        self.asked[url] += 1
        await asyncio.sleep(0)
        answer = self.documents[url]
        if isinstance(answer, Exception):
            raise answer
        return copy.deepcopy(answer)

    def token(self, tenant: Any, kid: str = "one", headers: Any = None, **claims: Any) -> str:
        """A token that is good unless `claims` make it otherwise; None takes a claim away."""
        now = int(claims.pop("now", time.time()))
        said = {
            "iss": ISSUER,
            "aud": "gpu-clusters",
            "iat": now,
            "exp": now + 600,
            "tenant": tenant,
            **claims,
        }
        return jwt.encode(
            {name: value for name, value in said.items() if value is not None},
            self.private[kid],
            algorithm=self.algorithms[kid],
            headers={"kid": kid, **(headers or {})},
        )


class Clock:
    """Time that a test can move, and stop."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._stopped: float | None = None

    def __call__(self) -> float:
        now = time.time() if self._stopped is None else self._stopped
        return now + self.ahead

    def stop(self) -> None:
        """From now on it is moved by the test alone."""
        self._stopped = time.time()


@dataclass
class Api:
    """The API, with what it talks to."""

    app: Gate
    cluster: FakeCluster
    issuer: FakeIssuer
    clock: Clock
    client: httpx.AsyncClient
    condition: Condition
    stop: Callable[[], None] = lambda: None
    """Tell the server to stop, where there is one."""

    def bearer(self, tenant: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.issuer.token(tenant, now=self.clock())}"}

    async def call(self, tenant: str, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**self.bearer(tenant), **options.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **options)

    async def get(self, tenant: str, path: str, **options: Any) -> httpx.Response:
        return await self.call(tenant, "GET", path, **options)

    async def post(self, tenant: str, *, key: str | None = None, **body: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        body = {"image": IMAGE, "gpus": 1, **body}
        return await self.call(tenant, "POST", "/v1/containers", json=body, headers=headers)

    async def delete(self, tenant: str, container: str) -> httpx.Response:
        return await self.call(tenant, "DELETE", f"/v1/containers/{container}")

    async def settle(self) -> None:
        """Let what was told by the cluster be heard."""
        for _ in range(20):
            await asyncio.sleep(0)


class Patient(Protocol):
    """Waits for headers as long as anybody waits for anything here."""

    header_seconds = PATIENCE_SECONDS


Act = Callable[[Api], Awaitable[None]]


def play(
    act: Act,
    *,
    cluster: FakeCluster | None = None,
    issuer: FakeIssuer | None = None,
    options: Mapping[str, Any] | None = None,
    **api: Any,
) -> None:
    """Run a test against the API; it must leave no task behind.

    Its loop's time passes only while all wait, however slow the machine is.
    """

    async def run() -> None:
        async with served(cluster, issuer, options or {}, **api) as running:
            await act(running)
        # What was told to end takes some turns for it.
        for _ in range(100):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(run())


def played(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that `play`s itself: its first parameter is the API, the others are pytest's."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        play(lambda api: test(api, **given))

    _, *others = inspect.signature(test).parameters.values()
    run.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return run


@asynccontextmanager
async def served(
    cluster: Any,
    issuer: FakeIssuer | None,
    options: Mapping[str, Any],
    *,
    living_too: bool = True,
    **api: Any,
) -> AsyncIterator[Api]:
    """The API with the tenants acme (4 GPUs) and globex (8)."""
    if cluster is None:
        cluster = FakeCluster()
        cluster.put("tenancies", tenancy("acme"))
        cluster.put("tenancies", tenancy("globex", gpus=8))
        cluster.put("namespaces", {"metadata": {"name": "gpu-clusters-system"}})
        for host in ("hgx-01", "hgx-02"):
            cluster.put("nodes", node(host))
            for module in range(1, 9):
                cluster.put(GPU_LEASE.plural, lease(host, module, "Free"))
    issuer = issuer or FakeIssuer()
    clock = Clock()
    wanted = settings(**api)
    keys = IssuerKeys(wanted.api, clock, issuer.fetch)
    program = create_app(wanted, cast(Cluster, cluster), clock=clock, keys=keys, **options)
    app = program.gate
    transport = httpx.ASGITransport(cast(Any, app), raise_app_exceptions=False)
    async with (
        living(app) if living_too else nullcontext(),
        httpx.AsyncClient(transport=transport, base_url="http://api") as client,
    ):
        running = Api(app, cluster, issuer, clock, client, program.condition)
        await running.settle()
        yield running


@asynccontextmanager
async def living(app: Gate) -> AsyncIterator[None]:
    """Start and stop the application as a server does."""
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    task = asyncio.create_task(
        app(
            {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}},
            cast(Any, told.get),
            cast(Any, heard.put),
        )
    )
    await told.put({"type": "lifespan.startup"})
    assert (await heard.get())["type"] == "lifespan.startup.complete"
    yield
    app.stop()
    await told.put({"type": "lifespan.shutdown"})
    assert (await heard.get())["type"] == "lifespan.shutdown.complete"
    await task


@asynccontextmanager
async def listening(
    cluster: FakeCluster | None = None,
    issuer: FakeIssuer | None = None,
    options: Mapping[str, Any] | None = None,
    protocol: type[Protocol] | None = None,
    door: Mapping[str, Any] | None = None,
    certificate: Certificate | None = None,
    **api: Any,
) -> AsyncIterator[tuple[Api, int]]:
    """The API behind its real server, on a port of loopback; its deadlines are those of a busy machine.

    One address may have as many connections as all, and may stall for as long as anybody waits for anything,
    unless `door` says otherwise.
    """
    patient = {"kube_seconds": PATIENCE_SECONDS, "body_seconds": PATIENCE_SECONDS}
    options = {**patient, **(options or {})}
    async with served(cluster, issuer, options, living_too=False, **api) as running:
        bounds = {
            "most_per_address": MOST_CONNECTIONS,
            "stall_seconds": PATIENCE_SECONDS,
            "tells": certificate is None,
            **(door or {}),
        }
        with Door(socket.AF_INET, **bounds) as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            server = Server(
                running.app,
                proxies=bounds.get("proxies", ()),
                certificate=certificate,
                protocol=protocol or Patient,
            )
            server.config.timeout_graceful_shutdown = PATIENCE_SECONDS
            running.stop = lambda: setattr(server, "should_exit", True)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                if task.done():
                    await task
                await asyncio.sleep(0.005)
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}",
                limits=limits,
                timeout=PATIENCE_SECONDS,
                trust_env=False,
            ) as client:
                running.client = client
                yield running, port
            server.should_exit = True
            await task
