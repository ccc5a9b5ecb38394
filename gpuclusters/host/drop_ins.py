"""Drop-ins that a GPU node needs: the few settings that matter, so that two writers never share a file."""

from enum import StrEnum

HEADER = (
    "# Managed by gpu-clusters. Changes made here are put back by the next `pulumi up --refresh`.\n"
)

KUBELET_DROP_IN = "/etc/kubernetes/kubelet.conf.d/50-gpu-clusters.conf"
"""Read by a kubelet started with `--config-dir` (Kubernetes 1.30 and newer)."""

CONTAINERD_DROP_IN = "/etc/containerd/conf.d/50-gpu-clusters.toml"
"""Imported by containerd's default configuration."""

CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")


class ContainerdSchema(StrEnum):
    """The version of containerd's configuration; the plugin names changed from 2 to 3."""

    V2 = "2"
    V3 = "3"


def kubelet(*, runtime_request_timeout_seconds: int, pod_resources_get: bool = False) -> str:
    """A KubeletConfiguration drop-in.

    Its own timeout of two minutes for containerd is too short for a VM with eight GPUs, whose BARs are mapped
    page by page. `pod_resources_get`: it needs a gate to tell Kata which GPUs a pod was given.
    """
    gate = "featureGates:\n  KubeletPodResourcesGet: true\n" if pod_resources_get else ""
    return (
        f"{HEADER}"
        "apiVersion: kubelet.config.k8s.io/v1beta1\n"
        "kind: KubeletConfiguration\n"
        f"runtimeRequestTimeout: {runtime_request_timeout_seconds}s\n"
        f"{gate}"
    )


def containerd(
    *,
    schema: ContainerdSchema,
    enable_cdi: bool,
    image_pull_progress_timeout_seconds: int,
) -> str:
    """A containerd drop-in: where CDI specs are found (the last wins), and patience for images of 20 GB.

    `schema` is the `version` of the main file; ids of the other version are ignored silently. containerd 1.7
    needs `enable_cdi`, from 2.0 it is on, and 2.4 no longer knows it.
    """
    directories = ", ".join(f'"{path}"' for path in CDI_DIRECTORIES)
    switch = "  enable_cdi = true\n" if enable_cdi else ""
    timeout = f'  image_pull_progress_timeout = "{image_pull_progress_timeout_seconds}s"\n'
    if schema is ContainerdSchema.V2:
        return (
            f"{HEADER}version = 2\n\n"
            '[plugins."io.containerd.grpc.v1.cri"]\n'
            f"{switch}  cdi_spec_dirs = [{directories}]\n{timeout}"
        )
    return (
        f"{HEADER}version = 3\n\n"
        '[plugins."io.containerd.cri.v1.runtime"]\n'
        f"{switch}  cdi_spec_dirs = [{directories}]\n\n"
        '[plugins."io.containerd.cri.v1.images"]\n'
        f"{timeout}"
    )
