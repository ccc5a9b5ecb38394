"""A cluster made by an `up` that is killed at every kind of its steps; then it drifts, in every way by hand.

That what acts may die anywhere is shown where it can be killed at each of its commands, writes and waits:
tests/providers/test_killed_at_every_command.py, tests/engine/test_kills.py, tests/engine/test_journal.py and
tests/caas/test_killed_at_every_await.py. Here one step of each kind is killed, among all the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab.hosts import faults
from tests.e2e.conftest import FABRIC_MANAGER, Checkout, checkout, settled
from tests.e2e.drifting_labs import Drifted, check, drift, kubectl, state_of, told
from tests.e2e.killing import ENDS, Kill, up_through_kills

pytestmark = [pytest.mark.lab, pytest.mark.timeout(540)]

KILLS = (
    Kill("CustomResourceDefinition", "engine"),
    Kill("HostFile", "engine", event=ENDS),
    Kill("HostBoot", "everything", seconds=1),  # the machine is on its way down
    Kill("ServiceVm", "ctrl-c"),
    Kill("FabricPartitions", "engine"),
    Kill("Release", "everything", seconds=0.5),  # Helm is at work
    Kill("TenancyPolicy", "engine"),
)
CDI = "/etc/cdi/nvidia.com-pgpu.json"
KUBELET = "/etc/kubernetes/kubelet.conf.d/50-gpu-clusters.conf"
GRUB = "/etc/default/grub.d/90-gpu-clusters.cfg"


@pytest.fixture(scope="module")
def caas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here."""
    with checkout(tmp_path_factory.mktemp("kill")) as dev:
        dev.only("caas")
        met = up_through_kills(dev, KILLS)
        assert len(met) >= len(KILLS) - 1, met
        yield dev


def test_an_up_killed_at_every_kind_of_step_converges(caas: Checkout) -> None:
    settled(caas)


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
