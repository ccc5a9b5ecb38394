"""What is done about a node of a Usernetes cluster, and our files beside upstream's."""

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from components.usernetes import OVERLAY
from gpuclusters.core import codes
from gpuclusters.core.finding import Finding, Level
from gpuclusters.host.model import sha256_of
from gpuclusters.host.node import ClusterNode
from gpuclusters.usernetes import decide
from gpuclusters.usernetes.addresses import ApiAccess
from gpuclusters.usernetes.model import LiveNode, UsernetesNodeInputs
from tests.fixtures.tables import beside
from tests.rootless.node.node import layer

CASES = beside(__file__, "usernetes_node.yaml")
IP = "10.128.0.7"
GPUS = ("GPU-aa", "GPU-bb")
TOKEN = "abcdef.0123456789abcdef"


def connection(name: str, **more: Any) -> dict[str, Any]:
    return {**CASES["worker"]["connection"], "host": name, **more}


def inputs(role: str = "worker", **changes: Any) -> UsernetesNodeInputs:
    control = {} if role == "worker" else {"control": None}
    return UsernetesNodeInputs.model_validate(
        {**CASES["worker"], "role": role, **control, **changes}
    )


def joined(of: UsernetesNodeInputs, **changes: Any) -> LiveNode:
    """A node as it is left when all went well."""
    live = LiveNode(
        **CASES["joined"],
        owner=of.natural_id,
        machine=of.connection.machine,
        release=of.release,
        overlay={name: sha256_of(text.encode()) for name, text in of.overlay.items()},
        image=of.image,
    )
    return live.model_copy(update=changes)


def node(**changes: Any) -> ClusterNode:
    annotations = {"flannel.alpha.coreos.com/public-ip-overwrite": IP}
    right = ClusterNode(ready=True, version="v1.37.0", annotations=annotations, external_ips=(IP,))
    return dataclasses.replace(right, **changes)


def found_in(
    of: UsernetesNodeInputs,
    host: LiveNode,
    there: ClusterNode | None = None,
    meeting: decide.Meeting | None = None,
    *,
    known: bool = True,
) -> list[Finding]:
    """All findings; each has a code that is listed, and can be told as drift."""
    found = [*decide.findings(of, decide.LivePlace(host, there, meeting), known=known)]
    assert all(codes.listed()[one.code].severity for one in found)
    return found


def blocking(*what: Any, **how: Any) -> str:
    return "\n".join(str(one) for one in found_in(*what, **how) if one.level is Level.BLOCK)


def test_a_node_that_is_as_it_must_be_is_left_alone() -> None:
    of = inputs()
    assert found_in(of, joined(of), node()) == []


@pytest.mark.parametrize("case", CASES["steps"], ids=lambda case: "-".join(case["live"]))
def test_volumes_that_do_not_fit_go_and_a_container_changes_around_others(
    case: dict[str, Any],
) -> None:
    of = inputs()
    steps = decide.plan(of, joined(of, **case["live"]))
    leaves = "leave" in case
    for why in ("leave", "recreate"):
        assert case.get(why, "") in getattr(steps, why)
        assert bool(getattr(steps, why)) is (why in case)
    done = [name for name in ("up", "join", "reset") if getattr(steps, name)]
    assert done == case.get("done", ["up", "join"] if leaves else ["up"])
    assert steps.fetch or not leaves
    assert steps.disturbs is (leaves or "recreate" in case)


@pytest.mark.parametrize("case", CASES["findings"], ids=lambda case: case["code"])
def test_what_differs_is_found_with_what_to_do(case: dict[str, Any]) -> None:
    of = inputs(case.get("role", "worker"))
    there = case.get("node", {})
    there = None if there is None else node(**there)
    found = found_in(of, joined(of, **case.get("live", {})), there)
    assert len(found) == 1 or "alone" not in case
    of_code = [one for one in found if one.code == f"usernetes.{case['code']}"]
    (one,) = [one for one in of_code if case.get("says", "") in one.problem]
    assert case.get("remedy", "") in one.remedy
    assert one.step == case.get("step", one.step)
    assert (one.level is Level.BLOCK) is ("remedy" in case or case["code"] == "docker-down")


def test_a_copied_disk_carries_the_node_of_another_machine() -> None:
    of = inputs(connection=connection("gpu-02", machine="new"))
    live = joined(of, owner="lab/gpu-01", machine="old")
    assert "its disk is a copy" in decide.plan(of, live).leave
    # Where nobody knows one machine from another it is left to its owner.
    known = inputs()
    other = joined(known, owner="lab/gpu-01")
    assert "the node on it belongs to lab/gpu-01" in blocking(known, other)


def test_all_that_is_wrong_with_a_host_is_said_at_once() -> None:
    said = blocking(inputs(), LiveNode(docker="Cannot connect", host_gpu=("GPU-aa",)))
    for words in (
        "does not answer (Cannot connect)",
        "no address was found",
        "nvidia-smi shows 1 GPUs and 2 are declared",
    ):
        assert words in said
    of = inputs()
    late = blocking(of, joined(of, joined=""), None, decide.Meeting(100, "v1.32.1", "refused"))
    for words in ("100 s apart", "runs Kubernetes v1.32.1", "6443/tcp", "8472/udp"):
        assert words in late


def test_a_name_that_another_host_has_is_refused_and_ones_own_is_not() -> None:
    of = inputs()
    bare = LiveNode(docker="ok", host_gpu=GPUS, route=IP)
    assert "has a node gpu-02 already (Ready)" in blocking(of, bare, node(), known=False)
    assert blocking(of, bare, node(ready=False)) == ""
    foreign = bare.model_copy(update={"volumes": 3})
    assert "no stack of ours made" in blocking(of, foreign, known=False)


def test_what_a_sync_puts_right_is_found() -> None:
    assert decide.sync_faults(node(), IP) == []
    taint = "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"
    tainted = node(taints=frozenset({taint}))
    found = decide.sync_faults(dataclasses.replace(tainted, external_ips=(), annotations={}), IP)
    assert len(found) == 3
    for words in ("ExternalIP", "flannel", "taint"):
        assert any(words in fault for fault in found)
    early = node(annotations={"flannel.alpha.coreos.com/public-ip": "10.100.2.100"})
    codes = {one.code: one.problem for one in decide.node_faults(inputs(), early, IP)}
    assert "it started before it was told" in codes["usernetes.flannel-address"]


def test_a_token_is_in_a_file_alone_and_the_file_in_no_command() -> None:
    line = (
        f"kubeadm join gpu-01:6443 --token {TOKEN} --discovery-token-ca-cert-hash sha256:{'a' * 64}"
    )
    invitation = decide.parse_invitation(line)
    assert TOKEN not in repr(invitation)
    assert invitation.token_id == "abcdef"
    text = decide.join_file(invitation, control_ip="10.128.0.6", control_name="gpu-01")
    commands = [one for one in text.splitlines() if one.startswith("kubeadm")]
    assert commands == ['kubeadm join --config "$config"']
    assert f"    token: {TOKEN}" in text
    with pytest.raises(ValueError, match="printed no join command") as failed:
        decide.parse_invitation(line.replace("sha256", "md5"))
    assert TOKEN not in str(failed.value)
    assert [decide.lifetime(hours) for hours in (1, 0.5, 0.001)] == ["60m", "30m", "1m"]


@pytest.mark.parametrize(("access", "server", "name"), CASES["reached"])
def test_a_kubeconfig_leads_there_from_outside(
    access: dict[str, Any], server: str, name: str | None
) -> None:
    at = ApiAccess(**access)
    text = decide.kubeconfig(CASES["kubeconfig"], at, name="lab", node_name="gpu-01", host_ip=IP)
    cluster = yaml.safe_load(text)["clusters"][0]
    assert cluster["cluster"]["server"] == server
    assert cluster["cluster"].get("tls-server-name") == name
    assert cluster["name"] == "lab"
    with pytest.raises(ValueError, match="not a kubeconfig"):
        decide.kubeconfig("clusters: []", at, name="lab", node_name="gpu-01", host_ip=IP)


def test_every_variable_is_stated_at_every_call() -> None:
    of = inputs()
    variables = of.environment(IP)
    assert variables.items() >= CASES["variables"].items()
    # Without them its preflight takes whatever image is latest.
    assert (variables["QUICK"], variables["BUSYBOX_IMAGE"]) == ("0", of.preflight_image)
    source = {**of.source.model_dump(), "tag": "gen2-v20250210.0"}
    older = inputs(source=source)
    assert "POD_SUBNET" not in older.environment(IP)
    assert (older.source.install_target, of.source.install_target) == (
        "install-flannel",
        "install-cni",
    )
    with pytest.raises(ValidationError, match="ranges of pods and services in a file of its own"):
        inputs(source=source, network={"pod-subnet": "10.20.0.0/16"})


@pytest.mark.parametrize(("changes", "words"), CASES["refused"])
def test_inputs_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        inputs(**changes)


FOLDER = Path(__file__).resolve().parents[2] / "gpuclusters/usernetes/overlay"


def test_every_file_is_laid_over() -> None:
    assert set(OVERLAY) == {file.name for file in FOLDER.iterdir()}


def test_compose_asks_for_all_gpus_by_a_qualified_name_and_keeps_upstreams_build() -> None:
    stated = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    node = stated["services"]["node"]
    assert node["devices"] == ["nvidia.com/gpu=all"]
    # The build context stays upstream's, and nothing of it is hidden by a mount of ours.
    assert set(node) == {"container_name", "build", "devices", "labels"}
    assert "context" not in node["build"]
    variables = set(re.findall(r"\$\{(\w+)", (FOLDER / "compose.yaml").read_text()))
    known = {"GPU_OVERLAY", "NVIDIA_CONTAINER_TOOLKIT_VERSION", "GPU_CLUSTERS_IMAGE", "NODE_MTU"}
    assert variables == known
    # A variable that is missing ends the call and is not taken for nothing.
    assert len(variables) == len(set(re.findall(r"\$\{(\w+):\?\}", str(stated))))


def test_the_image_pins_the_toolkit_and_puts_nothing_of_ours_under_a_volume() -> None:
    text = (FOLDER / "Dockerfile.gpu").read_text()
    assert text.count("=${NVIDIA_CONTAINER_TOOLKIT_VERSION}-1") == 4
    copied = re.findall(r"^COPY --from=overlay \S+ (\S+) (\S+)$", text, re.MULTILINE)
    assert {source for source, _ in copied} == {"node-gpus.sh", "usernetes-gpus.service"}
    for _, target in copied:
        assert not target.startswith(("/etc/", "/opt/", "/var/")), target
    unit = (FOLDER / "usernetes-gpus.service").read_text()
    assert "Before=containerd.service kubelet.service" in unit
    (start,) = re.findall(r"^ExecStart=(\S+)$", unit, re.MULTILINE)
    assert start in {target for _, target in copied}


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    program = tmp_path / "node-gpus"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "usernetes-gpus.service"
    text = (FOLDER / unit.name).read_text()
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={program}", text))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.replace(str(unit), "")) == (0, "")


def test_rootless_nodes_of_tests_have_the_scripts_of_our_overlay_as_its_dockerfile_puts_them(
    tmp_path: Path,
) -> None:
    made = layer(tmp_path)
    lines = (FOLDER / "Dockerfile.gpu").read_text().splitlines()
    placed = [line.split() for line in lines if line.startswith("COPY")]
    assert placed
    for _, _, mode, name, place in placed:
        copy = made / place.lstrip("/")
        assert copy.read_bytes() == (FOLDER / name).read_bytes()
        assert f"{copy.stat().st_mode & 0o7777:04o}" == mode.removeprefix("--chmod=")
