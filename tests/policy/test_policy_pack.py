"""The policy pack as Pulumi starts it: its own environment, its own process, the engine's protocol."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from gpuclusters.policy.rule import Scope
from gpuclusters.policy.rules import RULES
from tests.components.recorder import SECRET, SIGNATURE
from tests.fixtures.policy_environment import ROOT, policy_python
from tests.review.catalogue import handmade

# The first time its packages are fetched, by a network that may be slow.
pytestmark = pytest.mark.timeout(600)

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
DYNAMIC = "gpu-clusters:gpu:"
LEVELS = analyzer_pb2.EnforcementLevel


@pytest.fixture(scope="module")
def python() -> Path:
    return policy_python()


@pytest.fixture(scope="module")
def pack(python: Path) -> Iterator[analyzer_pb2_grpc.AnalyzerStub]:
    # As the language host does: this module, the address of the engine, the pack's folder.
    process = subprocess.Popen(
        [python, "-u", "-m", "pulumi.policy", "127.0.0.1:1", ROOT / "policy"],
        cwd=ROOT / "policy",
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield analyzer_pb2_grpc.AnalyzerStub(channel)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(autouse=True)
def _as_shipped(pack: analyzer_pb2_grpc.AnalyzerStub) -> None:
    configure(pack, {})


def configure(pack: analyzer_pb2_grpc.AnalyzerStub, stated: Mapping[str, Any]) -> None:
    """As the engine does: the defaults of the pack's own description, what is stated laid over them."""
    request = analyzer_pb2.ConfigureAnalyzerRequest()
    for policy in pack.GetAnalyzerInfo(empty_pb2.Empty()).policies:
        entry = request.policyConfig[policy.name]
        entry.enforcementLevel = policy.enforcementLevel
        for key, schema in policy.configSchema.properties.items():
            if "default" in schema:
                entry.properties[key] = schema["default"]
    for name, value in stated.items():
        entry = request.policyConfig[name]
        parameters = {"enforcementLevel": value} if isinstance(value, str) else dict(value)
        if level := parameters.pop("enforcementLevel", None):
            entry.enforcementLevel = LEVELS.Value(level.upper())
        entry.properties.update(parameters)
    pack.Configure(request)


def analyze(
    pack: analyzer_pb2_grpc.AnalyzerStub,
    type_: str,
    props: Mapping[str, Any],
    *,
    protect: bool = False,
) -> list[tuple[str, str, str]]:
    request = analyzer_pb2.AnalyzeRequest(
        type=type_, name="r", urn=f"urn:pulumi:prod::p::{type_}::r"
    )
    request.properties.update(dict(props))
    request.options.protect = protect
    return found(pack.Analyze(request))


def analyze_stack(
    pack: analyzer_pb2_grpc.AnalyzerStub, *resources: tuple[str, str, Mapping[str, Any]]
) -> list[tuple[str, str, str]]:
    request = analyzer_pb2.AnalyzeStackRequest()
    for type_, name, props in resources:
        one = request.resources.add(
            type=type_, name=name, urn=f"urn:pulumi:prod::p::{type_}::{name}"
        )
        one.properties.update(dict(props))
    return found(pack.AnalyzeStack(request))


def found(response: analyzer_pb2.AnalyzeResponse) -> list[tuple[str, str, str]]:
    return [
        (one.policyName, LEVELS.Name(one.enforcementLevel).lower(), one.message)
        for one in response.diagnostics
    ]


def test_every_rule_that_needs_no_deletions_is_a_policy(
    pack: analyzer_pb2_grpc.AnalyzerStub,
) -> None:
    info = pack.GetAnalyzerInfo(empty_pb2.Empty())
    assert (info.name, info.supportsConfig) == ("gpu-clusters", True)
    told = {p.name: LEVELS.Name(p.enforcementLevel).lower() for p in info.policies}
    assert told == {r.id: r.severity.word for r in RULES if r.scope is not Scope.CHANGE}
    assert all((ROOT / policy.remediation_steps).is_file() for policy in info.policies)


def test_its_environment_is_its_own(python: Path) -> None:
    told = subprocess.run(
        [python, "-c", "import google.protobuf as p, pulumi; print(p.__version__, pulumi.__file__)"],
        cwd=ROOT / "policy", capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    version, file = told.split()
    assert version.startswith("5.29.")
    assert Path(file).is_relative_to(python.parents[1])


def test_what_breaks_a_rule_is_told_before_it_is_made(
    pack: analyzer_pb2_grpc.AnalyzerStub,
) -> None:
    ((name, level, says),) = analyze(pack, f"{DYNAMIC}HostFile", {"connection": {"host": "gpu-01"}})
    assert (name, level) == ("host-key", "mandatory")
    assert "has no host_key" in says
    partitions = f"{DYNAMIC}FabricPartitions"
    ((name, level, says),) = analyze(pack, partitions, {})
    assert (name, level) == ("partition-protect", "advisory")
    assert "are not protected" in says
    assert analyze(pack, partitions, {}, protect=True) == []
    on_host = {"connection": handmade.connection("gpu-01")}
    driver = (f"{DYNAMIC}GpuDriver", "d", {**on_host, "version": "580.178.04"})
    told = analyze_stack(pack, (f"{DYNAMIC}VfioBinding", "v", on_host), driver)
    assert [(name, level) for name, level, _ in told] == [
        ("host-driver-on-passthrough", "mandatory")
    ]
    assert analyze_stack(pack, driver) == []


def test_the_budget_is_that_of_the_configuration(pack: analyzer_pb2_grpc.AnalyzerStub) -> None:
    machine = (handmade.INSTANCE, "v100-0", handmade.instance("v100-0", "us-central1-a"))
    assert analyze_stack(pack, machine) == []
    configure(pack, {"budget": {"monthly": 100}})
    ((name, level, message),) = analyze_stack(pack, machine)
    assert (name, level) == ("budget", "mandatory")
    assert "over budget" in message
    own = {"as-of": "2026-11-01", "own-machines": {"gpu-01": {"purchase": 876_000, "years": 4}}}
    configure(pack, {"budget": {"monthly": 100, "prices": own}})
    node = (f"{DYNAMIC}Rke2Node", "n", handmade.node("gpu-01", "agent"))
    ((_, _, message),) = analyze_stack(pack, (*handmade.CLUSTER, {}), node)
    assert "over budget: 18,250 USD a month of 100" in message


def test_levels_and_parameters_are_those_of_the_configuration(
    pack: analyzer_pb2_grpc.AnalyzerStub,
) -> None:
    rule = {"sourceRanges": ["10.0.0.0/8"], "allows": [{}]}
    configure(
        pack, {"open-firewall": {"allowed": ["192.0.2.0/24"], "enforcementLevel": "advisory"}}
    )
    ((_, level, message),) = analyze(pack, handmade.FIREWALL, rule)
    assert level == "advisory"
    assert "lets in 10.0.0.0/8, which is not allowed" in message
    configure(pack, {"open-firewall": "disabled"})
    assert analyze(pack, handmade.FIREWALL, {"sourceRanges": ["::/0"], "allows": [{}]}) == []


def test_a_configuration_with_faults_is_refused(pack: analyzer_pb2_grpc.AnalyzerStub) -> None:
    for stated, says in (
        ({"open-firewal": "advisory"}, "no rule 'open-firewal'; did you mean open-firewall?"),
        ({"open-firewall": {"allowed": ["10.0.0.1/8"]}}, "is no range of addresses"),
    ):
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT") as refused:
            configure(pack, stated)
        assert says in str(refused.value)
    # The word for all of them is no rule, and the engine passes it on.
    configure(pack, {"all": "advisory"})


def test_what_only_up_will_tell_is_no_fault_and_a_secret_is_never_told(
    pack: analyzer_pb2_grpc.AnalyzerStub,
) -> None:
    assert analyze(pack, handmade.RELEASE, {"chart": "x", "version": UNKNOWN}) == []
    later = {"connection": {"host": UNKNOWN, "host_key": UNKNOWN}}
    assert analyze(pack, f"{DYNAMIC}HostFile", later) == []
    hidden = {SIGNATURE: SECRET, "value": {"host": "a", "privateKey": "hunter2hunter2"}}
    told = analyze(pack, "command:remote:Command", {"connection": hidden})
    assert [name for name, _, _ in told] == ["host-key"]
    assert "hunter2" not in json.dumps(told)
