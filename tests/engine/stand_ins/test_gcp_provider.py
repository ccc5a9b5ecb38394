"""The stand-in for pulumi-gcp: what it previews, what it refuses, and that its table is the package's."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from engine.answers import ProviderError
from engine.stand_ins.gcp.kinds import table
from engine.values import UNKNOWN
from tests.engine.processkit import Engine
from tests.engine.stand_ins.plugin import Plugin, State, running
from tests.fixtures.tables import beside

ROOT = Path(__file__).resolve().parents[3]
NETWORK = "urn:pulumi:s::p::gcp:compute/network:Network::net"
FIREWALL = "urn:pulumi:s::p::gcp:compute/firewall:Firewall::ssh"
BUCKET = "urn:pulumi:s::p::gcp:storage/bucket:Bucket::b"
POOL = "urn:pulumi:s::p::gcp:container/nodePool:NodePool::a"
RULE = {"network": "projects/p/global/networks/lab", "name": "lab-ssh", "direction": "INGRESS"}


@pytest.fixture(scope="module")
def gcp_process() -> Iterator[Plugin]:
    with running("gcp") as plugin:
        assert plugin.configure(project="p", region="us-central1") == []
        assert "this is the lab's stand-in for pulumi-gcp 10.2.0" in plugin.engine.texts("INFO")[0]
        yield plugin


@pytest.fixture
def gcp(gcp_process: Plugin) -> Plugin:
    return gcp_process.anew()


def test_inputs_become_outputs_and_what_only_google_knows_is_unknown(gcp: Plugin) -> None:
    made = gcp.create(NETWORK, {"name": "lab", "mtu": 8896}, preview=True)
    assert made.id == ""
    assert made.outputs["name"] == "lab"
    assert made.outputs["mtu"] == 8896
    for key in ("selfLink", "networkId", "routingMode"):
        assert made.outputs[key] is UNKNOWN or made.outputs[key] == UNKNOWN


def test_a_name_is_made_once_and_kept(gcp: Plugin) -> None:
    first = gcp.check(NETWORK, {})
    assert re.fullmatch("net-[0-9a-f]{7}", first["name"])
    assert gcp.check(NETWORK, {}, first)["name"] == first["name"]


@pytest.mark.parametrize(
    ("urn", "inputs", "reasons"),
    [
        (FIREWALL, {"name": "a"}, ["network is missing from gcp:compute/firewall:Firewall"]),
        (
            NETWORK,
            {"mtuu": 1460},
            ["mtuu is not an input of gcp:compute/network:Network; did you mean mtu?"],
        ),
        (
            BUCKET,
            {"location": "EU"},
            [
                "gcp:storage/bucket:Bucket is not part of the gcp stand-in; there are:",
                "gcp:compute/network:Network",
                "install the Pulumi CLI",
            ],
        ),
    ],
)
def test_inputs_are_checked(
    gcp: Plugin, urn: str, inputs: dict[str, Any], reasons: list[str]
) -> None:
    (said,) = gcp.failures(urn, inputs).values()
    for reason in reasons:
        assert reason in said


def test_an_option_that_does_not_exist_is_refused() -> None:
    with running("gcp") as plugin:
        assert plugin.configure(projekt="p") == [
            ("projekt", "projekt is not an option of pulumi-gcp; did you mean project?")
        ]


def test_changes_are_compared_with_the_state_that_the_real_one_made(gcp: Plugin) -> None:
    link = "https://www.googleapis.com/x/lab"
    live = {**RULE, "network": link, "selfLink": "x", "priority": 1000}
    gcp.state[FIREWALL] = State("projects/p/global/firewalls/lab-ssh", RULE, live)
    assert gcp.changes(FIREWALL, RULE) == {}
    assert gcp.changes(FIREWALL, {**RULE, "disabled": True}) == {"disabled": "add"}
    assert gcp.changes(FIREWALL, {**RULE, "direction": "EGRESS"}) == {"direction": "update-replace"}
    previewed = gcp.update(FIREWALL, {**RULE, "disabled": True}, preview=True)
    assert previewed.outputs["selfLink"] == "x"


def test_a_pool_is_made_anew_for_other_gpus_and_not_for_a_larger_disk(gcp: Plugin) -> None:
    def pool(size: int, count: int) -> dict[str, Any]:
        cards = [{"type": "nvidia-tesla-v100", "count": count}]
        return {"cluster": "c", "nodeConfig": {"diskSizeGb": size, "guestAccelerators": cards}}

    gcp.state[POOL] = State("projects/p/locations/z/clusters/c/nodePools/a", pool(100, 1), {})
    assert gcp.changes(POOL, pool(200, 1)) == {"nodeConfig.diskSizeGb": "update"}
    (change,) = gcp.changes(POOL, pool(100, 2)).values()
    assert change == "update-replace"


@pytest.mark.parametrize("verb", ["create", "update", "delete", "read"])
def test_it_makes_and_changes_nothing(gcp: Plugin, verb: str) -> None:
    gcp.state[FIREWALL] = State("id", RULE, RULE)
    steps = {
        "create": lambda: gcp.create(FIREWALL, RULE),
        "update": lambda: gcp.update(FIREWALL, RULE),
        "delete": lambda: gcp.delete(FIREWALL),
        "read": lambda: gcp.read(FIREWALL),
    }
    with pytest.raises(
        ProviderError, match="the gcp stand-in previews only and does not"
    ) as refused:
        steps[verb]()
    assert "install the Pulumi CLI" in str(refused.value)


@pytest.mark.parametrize("token", sorted(table().kinds))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_table_is_that_of_the_package(token: str) -> None:
    place, name = token.removeprefix("gcp:").split("/", 1)[0], token.rpartition(":")[2]
    module = import_module(f"pulumi_gcp.{place}")
    kind = table().kinds[token]
    given = _properties(getattr(module, f"{name}Args"))
    shown = _properties(getattr(module, name))
    assert kind.inputs == set(given.values())
    assert set(kind.computed) == {
        wire
        for python, wire in shown.items()
        if python not in given and python not in ("id", "urn", "pulumi_resource_name", "pulumi_resource_type")
    }  # fmt: skip
    outermost = {key.partition(".")[0] for key in kind.replaces}
    assert {*kind.decided, *outermost, *kind.required} <= kind.inputs
    required = inspect.signature(getattr(module, f"{name}Args").__init__).parameters
    assert set(kind.required) == {
        given[python] for python, one in required.items() if python in given and one.default is one.empty
    }  # fmt: skip


def _properties(kind: type) -> dict[str, str]:
    found = {}
    for name, one in inspect.getmembers(kind, lambda member: isinstance(member, property)):
        wire = re.search(r'getter\(name="(\w+)"\)', inspect.getsource(one.fget))
        found[name] = wire[1] if wire else name
    return found


STORY = beside(__file__, "gcp.yaml")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, warm: Path) -> Iterator[Engine]:
    """A project with one machine on Google Cloud."""
    made = Engine(tmp_path_factory.mktemp("gcp"), warm)
    plugin = {"name": "gpu-clusters", "path": str(ROOT / "gpuclusters/providers")}
    project = {"name": "proc", "runtime": "python", "plugins": {"providers": [plugin]}}
    (made.folder / "Pulumi.yaml").write_text(json.dumps(project))
    made.program(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{STORY['program']}")
    (made.folder / "hosts.yaml").write_text(json.dumps(STORY["hosts"]))
    # Nobody's credentials, and no machine of Google's around us.
    for variable in [name for name in made.env if name.startswith("GOOGLE_")]:
        del made.env[variable]
    made.env |= {"CLOUDSDK_CONFIG": str(made.folder), "NO_GCE_CHECK": "true"}
    made.env["PYTHONPATH"] = os.pathsep.join((made.env["PYTHONPATH"], str(ROOT)))
    yield made
    made.end()


def test_a_stack_on_google_cloud_is_previewed_without_an_account(engine: Engine) -> None:
    said = engine.run("preview", "--json", "--stack", "dev")
    steps = json.JSONDecoder().raw_decode(said, said.index("{"))[0]["steps"]
    found = sorted(step["urn"].split("::", 2)[2].rpartition("$")[2] for step in steps)
    assert found == STORY["created"]
    assert {step["op"] for step in steps} == {"create"}
    assert "0.0.0.0/0" not in said
    assert "PRIVATE KEY" not in said


def test_an_up_says_that_pulumi_is_needed(engine: Engine) -> None:
    said = engine.up(expect=1)
    assert "the gcp stand-in previews only and does not make anything on Google Cloud" in said
    assert "install the Pulumi CLI" in said
    assert "Traceback" not in said
    assert "PRIVATE KEY" not in json.dumps(engine.state())
