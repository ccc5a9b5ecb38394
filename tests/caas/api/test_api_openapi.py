"""The API does what its own description says, whatever is sent to it."""

import base64
import hashlib
import secrets
import time
from collections.abc import Iterator
from typing import Any, cast

import jsonschema
import pytest
from anyio.from_thread import start_blocking_portal
from bs4 import BeautifulSoup
from hypothesis import HealthCheck, given, settings

from caas.api.app import create_app
from caas.api.gate import AnonymousLimit
from caas.api.problems import Problem
from caas.cluster import Cluster
from gpuclusters.tenancy.objects import POD
from tests.caas.api import apikit
from tests.caas.api.apikit import PATIENCE_SECONDS, Api, FakeCluster, played


class Endless(FakeCluster):
    """Never runs out of quota; what is deleted goes."""

    def __init__(self) -> None:
        super().__init__()
        self.put("tenancies", apikit.tenancy("acme", gpus=1_000_000))

    async def delete(self, kind: Any, name: str, namespace: str = "", **_: Any) -> None:
        if self.server.get(POD, name, namespace):
            self.remove("pods", name, namespace)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, str]]:
    """Address of an API, and a token of its tenant acme."""
    many = {"requestsPerSecond": 100_000, "burst": 100_000, "maxContainers": 100_000}
    all_comers = AnonymousLimit(time.monotonic, burst=10_000_000, burst_of_all=10_000_000)
    listening = apikit.listening(
        Endless(), options={"anonymous": all_comers}, operatorGroup="operators", **many
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(listening) as (api, port),
    ):
        # Something to be found.
        portal.call(api.made)
        yield f"http://127.0.0.1:{port}", api.issuer.token("acme", groups=["operators"])


def described() -> dict[str, Any]:
    """The document, without a server."""
    app: Any = create_app(apikit.settings(), cast(Cluster, FakeCluster()))
    return cast(dict[str, Any], app.gate.application.openapi())


PATHS = described()["paths"].items()


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    """By name, for a library that is imported where it is used alone: that takes a second of each worker."""
    import schemathesis

    schema = schemathesis.openapi.from_dict(described())
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(
    "label", [f"{method.upper()} {path}" for path, methods in PATHS for method in methods]
)
def test_every_answer_is_as_described(
    label: str, mode: str, served: tuple[str, str], operations: dict[str, Any]
) -> None:
    from schemathesis import GenerationMode

    base, token = served
    cases = operations[label].as_strategy(generation_mode=GenerationMode(mode))

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases)
    def ask(case: Any) -> None:
        if mode == "positive":
            # What is good form and may be refused all the same: a key that was used, a registry without
            # a name of the public DNS, volumes over one another.
            if "idempotency-key" in case.headers:
                case.headers["idempotency-key"] = secrets.token_hex(8)
            if isinstance(case.body, dict):
                case.body["image"] = apikit.IMAGE
                case.body.pop("volumes", None)
        headers = {"Authorization": f"Bearer {token}"}
        case.call_and_validate(base_url=base, headers=headers, timeout=PATIENCE_SECONDS)

    ask()


def test_every_route_asks_for_a_token_and_describes_its_refusals_with_examples_that_fit() -> None:
    said = described()
    (scheme,) = said["components"]["securitySchemes"]
    schemas = said["components"]["schemas"]
    fits = jsonschema.Draft202012Validator(
        {**schemas["ProblemAnswer"], "components": said["components"]}
    )
    shown: set[str] = set()
    for path, operations in said["paths"].items():
        for method, operation in operations.items():
            assert operation.get("security") == [{scheme: []}], (method, path)
            refusals = {s: r for s, r in operation["responses"].items() if int(s) >= 400}
            assert refusals.keys() >= {"401", "403", "429", "503"}, (method, path)
            for status, response in refusals.items():
                ((content_type, content),) = response["content"].items()
                assert content_type == "application/problem+json", (path, status)
                for example in content["examples"].values():
                    fits.validate(example["value"])
                    shown.add(example["value"]["type"])
    # Those of any server: every route has them, none describes them.
    of_any = {Problem.INTERNAL, Problem.METHOD, Problem.HEADERS_TOO_LARGE}
    assert shown == {problem.uri for problem in Problem if problem not in of_any}
    body = schemas["ContainerRequest"]
    for example in body["examples"]:
        jsonschema.validate(example, {**body, "components": said["components"]})


@pytest.mark.attack(
    by="whoever holds another site, or the way to it",
    tries="run a script on the API's origin through the page of its description",
    stopped_by="the page has no script and loads nothing; its policy allows its own style alone",
)
@played
async def test_the_page_for_people_loads_nothing_and_says_what_the_description_does(
    api: Api,
) -> None:
    answer = await api.client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    seen = BeautifulSoup(answer.text, "html.parser")
    every, text = seen.find_all(True), seen.get_text()
    tags = "html head meta title style body h1 h2 h3 p a ul li table tr th td code span"
    assert {tag.name for tag in every} <= set(tags.split())
    allowed = {"href", "id", "class", "lang", "charset", "name", "content"}
    assert {name for tag in every for name in tag.attrs} <= allowed
    (style,) = (tag.get_text() for tag in seen.find_all("style"))
    assert "url(" not in style
    assert "@import" not in style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert answer.headers["Content-Security-Policy"] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    places = {f"#{tag['id']}" for tag in seen.find_all(id=True)}
    links = {tag["href"] for tag in seen.find_all("a")}
    assert links <= places | {"/openapi.json"}
    assert "/openapi.json" in links
    document = described()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f"{method.upper()}{path}" in text
            assert operation["summary"] in text
    for name, schema in document["components"]["schemas"].items():
        assert name in text
        for field, one in schema.get("properties", {}).items():
            assert field in text
            assert one.get("description", "").replace("`", "") in text
