"""Drift of every kind, made by hand in two labs: each is found by its name, and none where there is none."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import tools
from lab.hosts import faults
from tests.e2e.conftest import FABRIC_MANAGER, Checkout, checkout

pytestmark = pytest.mark.lab

CDI = "/etc/cdi/nvidia.com-pgpu.json"
KUBELET = "/etc/kubernetes/kubelet.conf.d/50-gpu-clusters.conf"
GRUB = "/etc/default/grub.d/90-gpu-clusters.cfg"
RKE2_CONFIG = "/etc/rancher/rke2/config.yaml.d/50-gpu-clusters.yaml"
Drifted = tuple[str, str, str]
"""Id, where, and a part of what."""


def drift(dev: Checkout, *args: str) -> tuple[int, dict[str, Any]]:
    done = dev.run("drift", "--json", *args)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return done.returncode, found


def told(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["id"], one["where"], one["what"]) for one in report["findings"]]


def check(report: dict[str, Any], wanted: set[Drifted], also: set[str]) -> None:
    """Every drift that was made is named, and nothing is that was not made or follows from it."""
    found = told(report)
    missing = [
        (id_, where, what)
        for id_, where, what in sorted(wanted)
        if not any(id_ == i and where == w and what in t for i, w, t in found)
    ]
    assert not missing, json.dumps(report, indent=1)
    made = {(id_, where) for id_, where, _ in wanted}
    spare = [one for one in found if one[:2] not in made and one[0] not in also]
    assert not spare, json.dumps(report, indent=1)
    for one in report["findings"]:
        assert one["do"], one
        assert one["severity"] in ("critical", "warning", "notice")


def kubectl(dev: Checkout, *args: str) -> None:
    command = [str(tools.resolve("kubectl")), "--kubeconfig", str(dev.lab / "kubeconfig"), *args]
    done = subprocess.run(command, env=dev.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def state_of(dev: Checkout) -> bytes:
    return b"".join(
        path.read_bytes() for path in sorted((dev.lab / "state").rglob("*")) if path.is_file()
    )


@pytest.fixture(scope="module")
def caas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with checkout(tmp_path_factory.mktemp("drift")) as dev:
        dev.only("caas")
        dev.up()
        yield dev


@pytest.fixture(scope="module")
def rke2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with checkout(tmp_path_factory.mktemp("drift2")) as dev:
        dev.only("rke2")
        dev.up()
        yield dev


def test_nothing_drifted_where_nobody_touched_anything(caas: Checkout) -> None:
    before = state_of(caas)
    code, report = drift(caas)
    assert (code, report["findings"], report["not_looked_at"]) == (0, [], []), report
    assert report["up_would"] == []
    looked = report["looked_at"]
    assert looked["machines"] == looked["nodes"] == looked["firmware inventories"] == 2
    assert looked["leases"] == 16
    assert looked["tenants"] == 2
    assert looked["resources"] > 50
    assert looked["objects of Helm releases"] > 0
    assert state_of(caas) == before


def by_hand_on_the_machines(dev: Checkout) -> set[Drifted]:
    dev.on_host("hgx-01", f"sudo -n sed -i s/nvidia.com/evil.com/ {CDI}")
    dev.on_host("hgx-01", f"sudo -n sh -c 'echo runtimeRequestTimeout: 2m >> {KUBELET}'")
    for change in ("-d 14", "-d 5", "-a 11"):
        dev.on_host("hgx-01", f"fmpm --hostname {FABRIC_MANAGER} {change}")
    unit = "[Service]\\nType=oneshot\\nExecStart=/bin/false\\n"
    dev.on_host("hgx-01", f"sudo -n sh -c 'printf \"{unit}\" > /etc/systemd/system/broken.service'")
    dev.on_host("hgx-01", "sudo -n systemctl daemon-reload; sudo -n systemctl start broken || true")
    dev.on_host("hgx-02", f"sudo -n rm {CDI}")
    dev.on_host(
        "hgx-02", "sudo -n sh -c 'echo 0000:86:00.0 > /sys/bus/pci/drivers/vfio-pci/unbind'"
    )
    dev.on_host("hgx-02", "sudo -n systemctl disable gpu-clusters-vfio.service")
    dev.on_host("hgx-02", f"sudo -n sed -i s/iommu=pt/iommu=off/ {GRUB}")
    dev.on_host("hgx-02", "sudo -n touch /run/reboot-required")
    dev.on_host(
        "hgx-02", "sudo -n virsh destroy fabric-manager; sudo -n virsh start fabric-manager"
    )
    faults.inject(
        dev.lab / "hosts", "hgx-01", faults.FirmwareChanged(module=3, version="96.00.XX.66.66")
    )
    return {
        ("cdi-file-changed", "hgx-01", CDI),
        ("host-file-changed", "hgx-01", KUBELET),
        ("partition-inactive", "hgx-01", "partition 14"),
        ("partition-inactive", "hgx-01", "partition 5"),
        ("partition-foreign", "hgx-01", "partition 11"),
        ("unit-failed", "hgx-01", "broken.service"),
        ("firmware-changed", "hgx-01", "HGX_FW_GPU_SXM_3"),
        ("cdi-file-missing", "hgx-02", CDI),
        ("vfio-unbound", "hgx-02", "0000:86:00.0"),
        ("unit-changed", "hgx-02", "gpu-clusters-vfio.service"),
        ("kernel-command-line-changed", "hgx-02", ""),
        ("reboot-pending", "hgx-02", ""),
        ("fabric-manager-restarted", "hgx-02", "fabric-manager"),
    }


def by_hand_in_the_cluster(dev: Checkout) -> set[Drifted]:
    # Without controllers nobody puts back what is a tenant's.
    kubectl(dev, "-n", "gpu-clusters-system", "scale", "deploy", "controllers", "--replicas=0")
    kubectl(dev, "-n", "gpu-clusters-system", "wait", "--for=delete", "pod", "--timeout=60s",
            "-l", "app.kubernetes.io/name=gpu-clusters-controllers")  # fmt: skip
    kubectl(dev, "-n", "tenant-acme", "delete", "ciliumnetworkpolicy", "isolate")
    quota = {"spec": {"hard": {"requests.nvidia.com/pgpu": "16"}}}
    kubectl(dev, "-n", "tenant-globex", "patch", "resourcequota", "tenant", "--type", "merge",
            "-p", json.dumps(quota))  # fmt: skip
    rule = [{"op": "remove", "path": "/spec/validations/3"}]
    kubectl(dev, "patch", "validatingadmissionpolicy", "gpu-clusters-tenant-pods", "--type", "json",
            "-p", json.dumps(rule))  # fmt: skip
    grace = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 77}}}}
    kubectl(dev, "-n", "kata-system", "patch", "ds", "kata-deploy", "--type", "merge",
            "-p", json.dumps(grace))  # fmt: skip
    kubectl(dev, "-n", "kata-system", "delete", "configmap", "kata-deploy-custom-configs")
    kubectl(dev, "cordon", "hgx-01")
    kubectl(dev, "label", "node", "hgx-02", "nvidia.com/gpu.workload.config-")
    lost = {"status": {"phase": "Quarantined", "reason": "Test", "message": "by hand"}}
    kubectl(dev, "patch", "gpulease", "hgx-02-gpu2", "--subresource", "status", "--type", "merge",
            "-p", json.dumps(lost))  # fmt: skip
    return {
        ("object-changed", "gpu-clusters-system", "Deployment controllers"),
        ("network-policy-missing", "acme", "network-policy"),
        ("quota-changed", "globex", "quota"),
        ("admission-policy-changed", "cluster", "gpu-clusters-tenant-pods"),
        ("helm-object-changed", "kata-system/kata-deploy", "DaemonSet kata-deploy"),
        ("helm-object-missing", "kata-system/kata-deploy", "ConfigMap kata-deploy-custom-configs"),
        ("node-cordoned", "hgx-01", ""),
        ("node-label-missing", "hgx-02", "nvidia.com/gpu.workload.config"),
        ("lease-quarantined", "hgx-02", "hgx-02-gpu2"),
    }


def test_drift_of_machines_tenants_and_helm_is_found_and_named(caas: Checkout) -> None:
    wanted = by_hand_on_the_machines(caas) | by_hand_in_the_cluster(caas)
    before = state_of(caas)
    code, report = drift(caas)
    assert code == 1, report
    # A fabric manager that has started anew is told nothing yet, so that nothing is active either.
    check(report, wanted, {"partition-inactive"})
    by = {one["id"]: one["changed_by"] for one in report["findings"]}
    assert "kubectl-patch" in by["helm-object-changed"]
    assert "kubectl-patch" in by["quota-changed"]
    up = {one["id"]: one["up_puts_it_back"] for one in report["findings"]}
    assert up["cdi-file-missing"] is up["vfio-unbound"] is True
    assert up["helm-object-missing"] is up["firmware-changed"] is False
    assert state_of(caas) == before, "a look wrote to the state"
    file = caas.folder / "report.json"
    file.write_text(json.dumps(report))
    again = told(drift(caas, "--from", str(file), "--ignore", "unit-*", "--ignore", "*@hgx-01")[1])
    assert {one[1] for one in again} & {"hgx-01"} == set()
    assert "unit-failed" not in {one[0] for one in again}


def test_a_clean_rke2_cluster_has_no_drift(rke2: Checkout) -> None:
    code, report = drift(rke2)
    assert (code, report["findings"], report["not_looked_at"]) == (0, [], []), report


def test_drift_of_an_rke2_cluster_is_found_and_a_machine_that_is_away_hides_nothing(
    rke2: Checkout, tmp_path: Path
) -> None:
    rke2.on_host("gpu-01", f"sudo -n sh -c 'echo debug: true >> {RKE2_CONFIG}'")
    # As after somebody unloaded the module and loaded another.
    (version,) = (rke2.lab / "hosts" / "gpu-02").rglob("proc/driver/nvidia/version")
    version.write_text(version.read_text().replace("580.173.02", "570.86.15"))
    kubectl(rke2, "label", "node", "gpu-02", "nvidia.com/mig.config=all-disabled", "--overwrite")
    kubectl(rke2, "taint", "node", "cp-01", "CriticalAddonsOnly-")
    kubectl(rke2, "delete", "node", "gpu-01")
    kubectl(rke2, "-n", "gpu-operator", "set", "env", "deploy/gpu-operator", "EXTRA=1")
    stranger = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stranger"}}
    file = tmp_path / "node.json"
    file.write_text(json.dumps(stranger))
    kubectl(rke2, "create", "-f", str(file))
    faults.inject(rke2.lab / "hosts", "cp-01", faults.RefuseConnections())
    code, report = drift(rke2)
    assert code == 2
    assert any("cp-01" in one["what"] for one in report["not_looked_at"])
    wanted = {
        ("rke2-config-changed", "gpu-01", RKE2_CONFIG),
        ("driver-replaced", "gpu-02", "driver"),
        ("mig-layout-changed", "gpu-02", "MIG layout"),
        ("node-taint-missing", "cp-01", "CriticalAddonsOnly"),
        ("node-missing", "gpu-01", "gpu-01"),
        ("node-unknown", "stranger", "stranger"),
        ("helm-object-changed", "gpu-operator/gpu-operator", "Deployment gpu-operator"),
        ("host-unreachable", "cp-01", "cp-01"),
    }
    check(report, wanted, {"allocatable-lower", "gpus-not-ready", "resource-changed",
                           "gpu-operator-not-ready", "reboot-pending"})  # fmt: skip
    assert ("allocatable-lower", "gpu-02") in {one[:2] for one in told(report)}
    assert report["up_would"], "what up would do is known for what was reached"
