"""The programs that the lab starts: their versions, and where each of them comes from.

Versions are pinned here and in `modules/*/go.mod`; a test holds the two together.
"""

from collections.abc import Mapping

from lab.tools.model import Platform, Release, Tool, host_platform, parse_version
from lab.tools.node_programs import NODE_PROGRAMS

__all__ = ["FOR_NODES", "TOOLS", "Platform", "Release", "Tool", "host_platform", "parse_version"]

KUBERNETES_VERSION = "1.36.3"
ETCD_VERSION = "3.6.14"
HELM_VERSION = "4.3.1"


def _kubernetes(
    name: str,
    *arguments: str,
    sha256: Mapping[str, str] | None = None,
    systems: tuple[str, ...] = ("linux",),
) -> Tool:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    # A server without these answers v0.0.0 and clients refuse to talk to it.
    link_variables = {
        f"{package}.{variable}": value
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for variable, value in (
            ("gitVersion", f"v{KUBERNETES_VERSION}"),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
        )
    }
    url = f"https://dl.k8s.io/release/v{{version}}/bin/{{os}}/{{arch}}/{name}"
    return Tool(
        name=name,
        version=KUBERNETES_VERSION,
        module="kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        version_arguments=arguments,
        version_digits=2,
        link_variables=link_variables,
        release=Release(
            url=url, checksums_url=f"{url}.sha256", sha256=sha256 or {}, systems=systems
        ),
    )


_TOOLS = (
    Tool(
        name="etcd",
        version=ETCD_VERSION,
        module="etcd",
        package="go.etcd.io/etcd/server/v3",
        version_arguments=("--version",),
        version_digits=2,
        link_variables={"go.etcd.io/etcd/api/v3/version.GitSHA": f"v{ETCD_VERSION}"},
        release=Release(
            url="https://github.com/etcd-io/etcd/releases/download/v{version}/etcd-v{version}-{os}-{arch}.tar.gz",
            member="etcd-v{version}-{os}-{arch}/etcd",
            sha256={
                "linux-amd64": "ffe840ff9295808e88cce2794a18a5ac87f12a5203c8314d0bf6aa119b41bac5",
                "linux-arm64": "fa1b80565ee6fc2df1ae6f57a508b221f3ecc7d591c317c581cd8281b0842b3e",
            },
        ),
    ),
    _kubernetes("kube-apiserver", "--version"),
    _kubernetes("kube-controller-manager", "--version"),
    _kubernetes("kube-scheduler", "--version"),
    _kubernetes("kubelet", "--version"),
    _kubernetes("kube-proxy", "--version"),
    _kubernetes(
        "kubectl",
        "version",
        "--client",
        sha256={
            "linux-amd64": "ebbd080e7c2e275093b55915722043257eb24004363e20acb3c4d71919f88336",
            "linux-arm64": "3d86f24401c41ae5a46ac50eef8865fe891d3647d324a0836f6c63757a126e62",
        },
        systems=("linux", "darwin"),
    ),
    Tool(
        name="helm",
        version=HELM_VERSION,
        module="helm",
        package="helm.sh/helm/v4/cmd/helm",
        version_arguments=("version", "--short"),
        version_digits=1,
        link_variables={"helm.sh/helm/v4/internal/version.version": f"v{HELM_VERSION}"},
        release=Release(
            url="https://get.helm.sh/helm-v{version}-{os}-{arch}.tar.gz",
            checksums_url="https://get.helm.sh/helm-v{version}-{os}-{arch}.tar.gz.sha256sum",
            member="{os}-{arch}/helm",
            systems=("linux", "darwin"),
        ),
    ),
)

TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in (*_TOOLS, *NODE_PROGRAMS)}
FOR_NODES = frozenset({"kubelet", "kube-proxy", *(tool.name for tool in NODE_PROGRAMS)})
"""What only real nodes need."""
