"""The API does what its own description says, whatever is sent to it."""

import asyncio
import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import permutations
from typing import Any, cast

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode

from caas.api.app import create_app
from caas.api.gate import AnonymousLimit
from caas.api.problems import Problem
from caas.cluster import Cluster
from gpuclusters.container_api import image
from gpuclusters.container_api.request import CLOSED
from tests.caas.api import apikit
from tests.caas.api.apikit import settings as api_settings


class Endless(apikit.FakeCluster):
    """Never runs out of quota; what is deleted goes."""

    def _count(self, *_: Any) -> None:
        """Everything fits."""

    async def delete(self, kind: Any, name: str, namespace: str = "", **_: Any) -> None:
        if (namespace, name) in self.objects["pods"]:
            self.remove("pods", name, namespace)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, str]]:
    """Address of an API, and a token of its tenant acme."""
    loop = asyncio.new_event_loop()
    issuer = apikit.FakeIssuer()
    ready: list[str] = []
    begun, end = threading.Event(), asyncio.Event()

    async def live() -> None:
        cluster = Endless()
        cluster.put("tenancies", apikit.tenancy("acme"))
        cluster.put("namespaces", {"metadata": {"name": "gpu-clusters-system"}})
        many = {
            "requestsPerSecond": 100_000,
            "burst": 100_000,
            "maxContainers": 100_000,
            "operatorGroup": "operators",
        }
        all_comers = AnonymousLimit(time.monotonic, burst=10_000_000, burst_of_all=10_000_000)
        options = {"anonymous": all_comers}
        async with apikit.listening(cluster, issuer, options, **many) as (api, port):
            # Something to be found.
            await api.post("acme", key="k")
            ready.append(f"http://127.0.0.1:{port}")
            begun.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()))
    thread.start()
    try:
        assert begun.wait(apikit.PATIENCE_SECONDS), "the API did not start"
        yield ready[0], issuer.token("acme", exp=9_000_000_000, groups=["operators"])
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(apikit.PATIENCE_SECONDS)
        loop.close()


def described() -> dict[str, Any]:
    """The document, without a server."""
    app: Any = create_app(api_settings(), cast(Cluster, apikit.FakeCluster()))
    return cast(dict[str, Any], app.gate.application.openapi())


SCHEMA = schemathesis.openapi.from_dict(described())
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_described(
    label: str, mode: GenerationMode, served: tuple[str, str]
) -> None:
    base, token = served
    cases = OPERATIONS[label].as_strategy(generation_mode=mode)

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases)
    def ask(case: schemathesis.Case) -> None:
        if mode is GenerationMode.POSITIVE and "idempotency-key" in case.headers:
            # A key that was used is good form and refused all the same.
            case.headers["idempotency-key"] = secrets.token_hex(8)
        if mode is GenerationMode.POSITIVE:
            assume(_mountable(case.body) and _of_a_public_registry(case.body))
        headers = {"Authorization": f"Bearer {token}"}
        case.call_and_validate(base_url=base, headers=headers, timeout=apikit.PATIENCE_SECONDS)

    ask()


def _of_a_public_registry(body: Any) -> bool:
    """What a schema does not say of images: that a registry has a name of the public DNS, or is left out."""
    written = body.get("image") if isinstance(body, dict) else None
    return written is None or image.is_allowed(image.full(written), ())


def _mountable(body: Any) -> bool:
    """What a schema cannot say of volumes: no name twice, none over another or over the system's folders."""
    volumes = body.get("volumes") if isinstance(body, dict) else None
    names = [volume["name"] for volume in volumes or ()]
    paths = [f"{volume['path']}/" for volume in volumes or ()]
    closed = [f"{path}/" for path in CLOSED]
    over = [pair for pair in permutations(paths, 2) if pair[0].startswith(pair[1])]
    system = [path for path in paths if path.startswith(tuple(closed))]
    dotted = [path for path in paths if {".", ".."} & set(path.split("/"))]
    return len(set(names)) == len(names) and not over and not system and not dotted


@pytest.mark.parametrize(
    ("paths", "fits"),
    [
        (["/a", "/b"], True),
        (["/a", "/ab"], True),
        (["/a", "/a"], False),
        (["/a/b", "/a"], False),
        (["/etc/x"], False),
        (["/a/.."], False),
    ],
)
def test_what_is_left_out_is_what_the_api_refuses(paths: list[str], *, fits: bool) -> None:
    volumes = [{"name": f"v{number}", "path": path} for number, path in enumerate(paths)]
    assert _mountable({"volumes": volumes}) is fits

    async def act(api: apikit.Api) -> None:
        # Where they could be mounted, it is found that there are none.
        answer = await api.post("acme", volumes=volumes)
        assert answer.status_code == (409 if fits else 422)

    apikit.play(act)


def test_every_route_of_tenants_asks_for_a_token_and_describes_its_refusals() -> None:
    said = described()
    (scheme,) = said["components"]["securitySchemes"]
    for path, operations in said["paths"].items():
        for method, operation in operations.items():
            assert operation.get("security") == [{scheme: []}], (method, path)
            wanted = {"401", "403", "429", "503"}
            assert wanted <= operation["responses"].keys(), (method, path)
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert response["content"].keys() == {"application/problem+json"}, (
                        path,
                        status,
                    )


def test_examples_fit_their_schemas() -> None:
    said = described()
    body = said["components"]["schemas"]["ContainerRequest"]
    for example in body["examples"]:
        jsonschema.validate(example, {**body, "components": said["components"]})
    problem = said["components"]["schemas"]["ProblemAnswer"]
    shown: set[str] = set()
    for operations in said["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    for example in response["content"]["application/problem+json"][
                        "examples"
                    ].values():
                        jsonschema.validate(
                            example["value"], {**problem, "components": said["components"]}
                        )
                        shown.add(example["value"]["type"])
    everywhere = {problem.uri for problem in Problem}
    # Those of any server: every route has them, none describes them.
    assert everywhere - shown == {
        Problem.INTERNAL.uri,
        Problem.METHOD.uri,
        Problem.HEADERS_TOO_LARGE.uri,
    }


class Page(HTMLParser):
    """What a browser would make of a page; fails where tags do not match."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.styles: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["style"]:
            self.styles.append(data)
        self.text += data


@pytest.mark.attack(
    by="whoever holds another site, or the way to it",
    tries="run a script on the API's origin through the page of its description",
    stopped_by="the page has no script and loads nothing; its policy allows its own style alone",
)
def test_the_page_for_people_loads_nothing() -> None:
    async def act(api: apikit.Api) -> None:
        answer = await api.client.get("/docs")
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        seen = Page(answer.text)
        assert {tag for tag, _ in seen.tags} <= {
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "h1",
            "h2",
            "h3",
            "p",
            "a",
            "ul",
            "li",
            "table",
            "tr",
            "th",
            "td",
            "code",
            "span",
        }
        allowed = {"href", "id", "class", "lang", "charset", "name", "content"}
        assert {name for _, attributes in seen.tags for name in attributes} <= allowed
        (style,) = seen.styles
        assert "url(" not in style
        assert "@import" not in style
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert answer.headers["Content-Security-Policy"] == (
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        )
        places = {f"#{attributes['id']}" for _, attributes in seen.tags if "id" in attributes}
        links = {attributes["href"] for tag, attributes in seen.tags if tag == "a"}
        assert links <= places | {"/openapi.json"}
        assert "/openapi.json" in links

    apikit.play(act)


@apikit.played
async def test_the_page_for_people_says_what_the_description_does(api: apikit.Api) -> None:
    said = Page((await api.client.get("/docs")).text).text
    for path, operations in described()["paths"].items():
        for method, operation in operations.items():
            assert f"{method.upper()}{path}" in said
            assert operation["summary"] in said
    for name, schema in described()["components"]["schemas"].items():
        assert name in said
        for field, one in schema.get("properties", {}).items():
            assert field in said
            assert one.get("description", "").replace("`", "") in said
