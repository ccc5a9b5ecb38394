"""The ladder of a rootless cluster: what makes each rung fail, what is said then, and what is not tried."""

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from gpuclusters.compat import known_errors
from gpuclusters.core.finding import Refused
from gpuclusters.gpu_operator.readiness import wait
from gpuclusters.proof import checks as proof
from gpuclusters.proof import hosts, ladder_run, nodes
from gpuclusters.proof.checks import Check, CheckLevel, Outcome, ProofResult
from gpuclusters.proof.nodes import PluginGateInputs
from tests.fixtures.tables import beside
from tests.fixtures.waiting import Waiting
from tests.unit.proof.proof_world import (
    UUIDS,
    LadderCluster,
    host,
    inputs,
    reached,
    trained,
)

TEXTS = {"reach.py": "#", "train.py": "#"}
FAULTS: dict[str, list[dict[str, Any]]] = beside(__file__, "ladder.yaml")
NO_NVML = "E1 1 factory.go:112] Incompatible strategy detected auto\nE1 1 main.go:173] error starting plugins"
CRASHES = {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}


def info(**changes: Any) -> str:
    """Section of `docker info` with changes."""
    (line,) = [line for line in host().splitlines() if line.startswith("{")]
    return "0\n" + json.dumps(json.loads(line) | changes) + "\n"


def climb(
    cluster: LadderCluster, rung: int = 9, *, strict: bool = True, **changes: Any
) -> ProofResult:
    wanted = inputs(rung, **changes)
    return ladder_run.run(wanted, cluster, Waiting(), Waiting(), TEXTS, strict=strict)


def spoiled(fault: dict[str, Any], **kind: Any) -> LadderCluster:
    """A cluster with this fault."""
    made = LadderCluster(**kind)
    for name, value in fault.items():
        match name:
            case "plugin":
                made.plugin, made.logs["plugin"] = CRASHES, value
            case "reach-1":
                made.logs[name] = reached("b", **value) if value else ""
            case "log":
                made.logs["training"] = trained(**value) if isinstance(value, dict) else value
            case "vector-add-log":
                made.logs["vector-add"] = value
            case "vector-add" | "training":
                made.ended[name] = value
            case "gpus" | "external" | "ready" | "pending" | "crashing" | "pools":
                setattr(made, name, value)
    return made


def named(fault: dict[str, Any]) -> str:
    return f"R{fault['rung']} {fault['says']}"


def whole(said: str, cluster: LadderCluster) -> list[Check]:
    """All nine rungs, as `verify` climbs them."""
    checks = hosts.judge("a", 2, hosts.parse(said))
    if not proof.proven(checks):
        return [
            *checks,
            *proof.USERNETES.above(
                CheckLevel.NODE_CDI, CheckLevel.TRAINING, "the hosts' rungs do not hold"
            ),
        ]
    return [*checks, *climb(cluster).checks]


def test_all_nine_rungs_hold_and_nothing_stays_behind() -> None:
    cluster = LadderCluster()
    checks = whole(host(), cluster)
    assert proof.proven(checks), proof.faults(checks)
    assert [c.level for c in checks] == [
        "R1", "R2", "R3", "R4", "R5", "R5", "R6", "R6", "R7", "R7", "R8", "R8", "R9",
    ]  # fmt: skip
    assert cluster.left() == []
    assert checks[-1].figures | {"loss": 0} == {
        "nodes": 2, "gpus": 4, "epochs": 4, "batch_size": 128, "accuracy": 0.8065, "loss": 0,
        "seconds": 125.0, "trained_seconds": 101.5, "simulated": 0,
    }  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS["usernetes"], ids=named)
def test_every_fault_fails_at_its_rung_and_ends_the_climb(fault: dict[str, Any]) -> None:
    rung, made = fault["rung"], spoiled(fault)
    sections = fault.get("host", {}).items()
    said = {name: info(**text) if isinstance(text, dict) else text for name, text in sections}
    checks = whole(host(**said), made)
    wrong = [check for check in checks if check.outcome is Outcome.FAILED]
    assert {check.level for check in wrong} == {f"R{rung}"}, wrong
    assert fault["says"] in "\n".join(proof.faults(wrong))
    tried = {check.level for check in checks if check.outcome is Outcome.PASSED}
    assert {f"R{n}" for n in range(1, rung)} <= tried
    left = {check.level for check in checks if check.outcome is Outcome.NOT_TRIED}
    assert left == {f"R{n}" for n in range(max(rung, 4) + 1, 10)}
    assert made.left() == []


def test_a_node_that_nobody_configured_is_named_unless_it_leaves_with_this_very_up() -> None:
    cluster = LadderCluster(foreign={"other"})
    # One of another kind in the same cluster is nobody's fault.
    cluster.gpus["other"], cluster.ready["other"] = "0", "True"
    cluster.gpus["old"], cluster.ready["old"], cluster.external["old"] = "2", "True", "x"
    (wrong,) = [c for c in climb(cluster, 5).checks if c.outcome is Outcome.FAILED]
    assert (wrong.level, wrong.subject) == ("R5", "old")
    assert "kubectl delete node old" in wrong.said
    assert [c for c in climb(cluster, 5, strict=False).checks if c.outcome is Outcome.FAILED] == []


NAMES = "".join(f"nvidia.com/gpu={name}\n" for name in ("0", "1", *UUIDS, "all"))


@pytest.mark.parametrize(
    ("said", "last", "outcome"),
    [
        # Index names beside UUIDs do no harm.
        (host(node_cdi=f"0\n{NAMES}"), "R4", Outcome.PASSED),
        # The runtime of an older Docker is as good as its CDI devices.
        (
            host(docker_info=info(DiscoveredDevices=[], Runtimes={"nvidia": {}})),
            *("R4", Outcome.PASSED),
        ),
        # A host that breaks off fails at what it did not say.
        (host()[: host().index("== docker-run")], "R3", Outcome.FAILED),
    ],
)
def test_what_a_host_says_is_judged_rung_by_rung(said: str, last: str, outcome: Outcome) -> None:
    *_, check = checks = hosts.judge("a", 2, hosts.parse(said))
    assert (check.level, check.outcome) == (last, outcome)
    assert proof.proven(checks) == (outcome is Outcome.PASSED)
    assert check.figures.get("names", 3) == 3


def test_a_control_plane_with_its_taint_gets_no_pods() -> None:
    cluster = LadderCluster()
    nodes = [{"name": "a", "gpus": 2, "takes_pods": False}, {"name": "b", "gpus": 2}]
    cluster.logs["reach-0"] = reached("b")
    cluster.logs["training"] = trained(nodes=1, devices=["V100"] * 2)
    result = climb(cluster, nodes=nodes)
    assert proof.proven(result.checks), proof.faults(result.checks)
    assert [c.subject for c in result.checks if c.level in {"R6", "R8"}] == ["b", "b"]
    assert [c.subject for c in result.checks if c.level == "R7"] == ["a", "b"]


def test_time_runs_out_for_the_whole_climb() -> None:
    cluster = LadderCluster(pending="0/2 nodes are available")
    clock = Waiting()
    wanted = inputs(9, timeout_seconds=30)
    result = ladder_run.run(wanted, cluster, clock, Waiting(), TEXTS)
    assert not proof.proven(result.checks)
    assert 30 <= clock.time < 60


@pytest.mark.parametrize("refused", FAULTS["refused"], ids=lambda one: one["says"])
def test_what_cannot_be_climbed_is_refused(refused: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=refused["says"]):
        inputs(**refused["inputs"])


def test_the_gate_waits_and_then_names_node_rung_and_cause() -> None:
    cluster = LadderCluster(gpus={"a": "2", "b": "0"}, plugin=CRASHES)
    cluster.logs["plugin"] = NO_NVML
    wanted = PluginGateInputs(
        cluster="v100", kubeconfig="secret", expected={"a": 2, "b": 2}, timeout_seconds=60
    )
    clock, reporter = Waiting(), Waiting()
    with pytest.raises(Refused) as refused:
        wait(wanted, cluster, clock, reporter)
    text = str(refused.value)
    assert "not ready after 60 s" in text
    assert "node b: nvidia.com/gpu: 0, wanted 2; pod plugin-b on b: container" in text
    assert 'the plugin says "Incompatible strategy detected auto"' in text
    assert "node a" not in text
    assert "secret" not in text
    assert clock.time >= 58
    assert len(reporter.notes) == 1, "what is waited for is told once"
    cluster.gpus["b"] = "2"
    told = wait(wanted, cluster, clock, reporter)
    assert told == {"allocatable": {"a": 2, "b": 2}, "drift": []}


def managed(cluster: LadderCluster) -> ProofResult:
    return climb(cluster, nodes=[], pools=[{"name": "v100", "nodes": 2, "gpus": 2}])


def test_a_managed_cluster_is_climbed_by_its_pools_and_no_more_nodes_than_were_asked_for() -> None:
    labels = {"gke-x-0": "system"} | {f"gke-x-{n}": "v100" for n in range(1, 5)}
    cluster = LadderCluster(
        gpus=dict.fromkeys(labels, "2"),
        ready=dict.fromkeys(labels, "True"),
        external={},
        pools=labels,
    )
    cluster.logs |= {f"reach-{n}": reached(f"gke-x-{n + 1}") for n in range(2)}
    found = managed(cluster)
    assert proof.proven(found.checks), proof.faults(found.checks)
    rungs = [check.level for check in found.checks]
    assert (min(rungs), max(rungs)) == ("R5", "R9")
    assert {c.subject for c in found.checks if c.level == "R5"} == {"gke-x-1", "gke-x-2"}
    assert set(found.observed) == {"gke-x-1", "gke-x-2"}
    assert any("takes about 0m33" in remark for remark in found.remarks)
    assert not any("rootless" in remark for remark in found.remarks)
    assert cluster.left() == []


OF_USERNETES = re.compile(
    r"docker|rootless|usernetes|\bCDI\b|systemctl|systemd|\bmake\b|kubeadm|external|token|\.conf|flannel",
    re.IGNORECASE,
)


@pytest.mark.parametrize("fault", FAULTS["gke"], ids=named)
def test_on_googles_nodes_no_rung_gives_the_advice_of_a_rootless_cluster(
    fault: dict[str, Any],
) -> None:
    cluster = spoiled({"pools": {"a": "v100", "b": "v100"}} | fault, external={})
    cluster.plugin_labels = nodes.GOOGLES_PLUGIN
    checks = managed(cluster).checks
    wrong = [check for check in checks if check.outcome is Outcome.FAILED]
    assert {check.level for check in wrong} == {f"R{fault['rung']}"}, wrong
    assert fault["says"] in "\n".join(proof.faults(wrong))
    left = {check.level for check in checks if check.outcome is Outcome.NOT_TRIED}
    assert left == {f"R{n}" for n in range(fault["rung"] + 1, 10)}
    plugins = {"nvidia-gpu-device-plugin"} if fault["rung"] == 7 else set()
    assert cluster.containers == plugins
    for check in checks:
        assert not OF_USERNETES.search(f"{check.what} {check.said}"), check


@pytest.mark.parametrize("ladder", [proof.USERNETES, proof.GKE], ids=lambda one: str(one.kind))
def test_each_rung_and_each_known_error_of_a_ladder_has_advice_of_its_own_kind(
    ladder: proof.Ladder,
) -> None:
    assert min(ladder.steps) is ladder.first
    texts = [" ".join(step) for step in ladder.steps.values()]
    assert all(step.remedy for step in ladder.steps.values())
    for area in ("ladder", f"ladder-{ladder.kind}"):
        texts += [f"{one.cause} {one.remedy}" for one in known_errors.known(area)]
    googles, rootless = (
        [text for text in texts if pattern.search(text)]
        for pattern in (re.compile("Google|gcloud|node pool"), OF_USERNETES)
    )
    assert bool(googles) == (ladder is proof.GKE), googles
    assert bool(rootless) == (ladder is proof.USERNETES), rootless
