"""NVIDIA's device plugin and exporter for nodes that are rootless containers: `manifests/gpus.yaml`; pure."""

from collections.abc import Mapping
from typing import Any

import yaml

from gpuclusters.core import scripts

NAMESPACE = "kube-system"
PLUGIN_LABELS: Mapping[str, str] = {"name": "nvidia-device-plugin-ds"}
PLUGIN_CONTAINER = "nvidia-device-plugin-ctr"


def runtime_class() -> dict[str, Any]:
    return _manifest("RuntimeClass", "nvidia")


def device_plugin(image: str) -> dict[str, Any]:
    return _manifest("DaemonSet", "nvidia-device-plugin-daemonset", image)


def dcgm_exporter(image: str) -> dict[str, Any]:
    return _manifest("DaemonSet", "nvidia-dcgm-exporter", image)


def exporter_service() -> dict[str, Any]:
    return _manifest("Service", "nvidia-dcgm-exporter")


def _manifest(kind: str, name: str, image: str = "") -> dict[str, Any]:
    documents = yaml.safe_load_all(scripts.read("usernetes/manifests/gpus.yaml"))
    (found,) = (o for o in documents if (o["kind"], o["metadata"]["name"]) == (kind, name))
    if image:
        (container,) = found["spec"]["template"]["spec"]["containers"]
        container["image"] = image
    return dict(found)
