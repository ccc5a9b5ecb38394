"""`gpu-clusters drift` in a lab: what is changed by hand there, and what is told of it."""

from __future__ import annotations

import json
from typing import Any

from lab.hosts import faults, injecting
from tests.e2e.conftest import FABRIC_MANAGER, Checkout

Drifted = tuple[str, str, str]
"""Id, where, and a part of what."""
CDI = "/etc/cdi/nvidia.com-pgpu.json"
KUBELET = "/etc/kubernetes/kubelet.conf.d/50-gpu-clusters.conf"
GRUB = "/etc/default/grub.d/90-gpu-clusters.cfg"


def drift(dev: Checkout, *args: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    done = dev.run("drift", "--json", *args)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return done.returncode, found


def told(report: dict[str, Any]) -> list[Drifted]:
    """What a report names."""
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


def state_of(dev: Checkout) -> bytes:
    """The files of the state."""
    return b"".join(
        path.read_bytes() for path in sorted((dev.lab / "state").rglob("*")) if path.is_file()
    )


def by_hand_on_the_machines(dev: Checkout) -> set[Drifted]:
    """Change files, units, partitions, firmware and more on both machines; what is to be told of it."""
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
    injecting.inject(
        dev.lab / "hosts", "hgx-01", faults.FirmwareChanged(module=3, version="96.00.XX.66.66")
    )
    return {
        ("cdi.devices-changed", "hgx-01", CDI),
        ("host.file-changed", "hgx-01", KUBELET),
        ("fabric.partition-inactive", "hgx-01", "partition 14"),
        ("fabric.partition-inactive", "hgx-01", "partition 5"),
        ("fabric.partition-foreign", "hgx-01", "partition 11"),
        ("host.unit-failed", "hgx-01", "broken.service"),
        ("host.firmware-changed", "hgx-01", "HGX_FW_GPU_SXM_3"),
        ("cdi.missing", "hgx-02", CDI),
        ("vfio.unbound", "hgx-02", "0000:86:00.0"),
        ("vfio.unit-inactive", "hgx-02", "gpu-clusters-vfio.service"),
        ("boot.next-arguments", "hgx-02", ""),
        ("host.reboot-pending", "hgx-02", ""),
        ("fabric.manager-restarted", "hgx-02", "fabric-manager"),
    }


def by_hand_in_the_cluster(dev: Checkout) -> set[Drifted]:
    """Change objects of tenants, of a Helm release, nodes and a lease; what is to be told of it."""
    # Without controllers nobody puts back what is a tenant's.
    dev.kubectl_text(
        "-n", "gpu-clusters-controllers", "scale", "deploy", "controllers", "--replicas=0"
    )
    dev.kubectl_text("-n", "gpu-clusters-controllers", "wait", "--for=delete", "pod", "--timeout=300s",
            "-l", "app.kubernetes.io/name=gpu-clusters-controllers")  # fmt: skip
    dev.kubectl_text("-n", "tenant-acme", "delete", "ciliumnetworkpolicy", "isolate")
    quota = {"spec": {"hard": {"requests.nvidia.com/pgpu": "16"}}}
    dev.kubectl_text("-n", "tenant-globex", "patch", "resourcequota", "tenant", "--type", "merge",
            "-p", json.dumps(quota))  # fmt: skip
    rule = [{"op": "remove", "path": "/spec/validations/3"}]
    dev.kubectl_text("patch", "validatingadmissionpolicy", "gpu-clusters-tenant-pods", "--type", "json",
            "-p", json.dumps(rule))  # fmt: skip
    grace = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 77}}}}
    dev.kubectl_text("-n", "kata-system", "patch", "ds", "kata-deploy", "--type", "merge",
            "-p", json.dumps(grace))  # fmt: skip
    dev.kubectl_text("-n", "kata-system", "delete", "configmap", "kata-deploy-custom-configs")
    dev.kubectl_text("cordon", "hgx-01")
    dev.kubectl_text("label", "node", "hgx-02", "nvidia.com/gpu.workload.config-")
    lost = {"status": {"phase": "Quarantined", "reason": "Test", "message": "by hand"}}
    dev.kubectl_text("patch", "gpulease", "hgx-02-gpu2", "--subresource", "status", "--type", "merge",
            "-p", json.dumps(lost))  # fmt: skip
    return {
        ("stack.object-changed", "gpu-clusters-controllers", "Deployment controllers"),
        ("tenant.network-policy-missing", "acme", "network-policy"),
        ("tenant.quota-changed", "globex", "quota"),
        ("tenant.admission-policy-changed", "cluster", "gpu-clusters-tenant-pods"),
        ("helm.object-changed", "kata-system/kata-deploy", "DaemonSet kata-deploy"),
        ("helm.object-missing", "kata-system/kata-deploy", "ConfigMap kata-deploy-custom-configs"),
        ("node.cordoned", "hgx-01", ""),
        ("node.label-missing", "hgx-02", "nvidia.com/gpu.workload.config"),
        ("gpu.lease-quarantined", "hgx-02", "hgx-02-gpu2"),
    }
