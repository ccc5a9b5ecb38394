"""The programs of a real node, beside those of Kubernetes: containerd 2, runc, CNI plugins, CoreDNS, images'.

containerd of a distribution may be 1.6, which knows no CDI: versions found on PATH must be of ours. Of runc
any 1.x does; it is the one program that needs a C library to be built, so it comes ready or not at all.
"""

from lab.tools.model import DebianFile, Release, Tool

CONTAINERD_VERSION = "2.4.2"
RUNC_VERSION = "1.3.6"
CNI_VERSION = "1.9.1"
COREDNS_VERSION = "1.15.0"
IPTABLES_VERSION = "1.8.9"
PAUSE_VERSION = "1.0.0"
BUSYBOX_VERSION = "1.35.0"

_CONTAINERD = "github.com/containerd/containerd/v2"
_CNI = "github.com/containernetworking/plugins"


def _containerd(name: str, version_argument: str) -> Tool:
    archive = (
        "https://github.com/containerd/containerd/releases/download/v{version}/"
        "containerd-{version}-{os}-{arch}.tar.gz"
    )
    return Tool(
        name=name,
        version=CONTAINERD_VERSION,
        module="containerd",
        package=f"{_CONTAINERD}/cmd/{name}",
        version_arguments=(version_argument,),
        version_digits=2,
        link_variables={f"{_CONTAINERD}/version.Version": f"v{CONTAINERD_VERSION}"},
        # Three snapshotters that need libraries in C.
        tags=("no_btrfs", "no_devmapper", "no_zfs"),
        release=Release(url=archive, checksums_url=f"{archive}.sha256sum", member=f"bin/{name}"),
    )


def _cni(kind: str, plugin: str) -> Tool:
    archive = (
        "https://github.com/containernetworking/plugins/releases/download/v{version}/"
        "cni-plugins-{os}-{arch}-v{version}.tgz"
    )
    return Tool(
        name=f"cni-{plugin}",
        version=CNI_VERSION,
        module="cni",
        package=f"{_CNI}/plugins/{kind}/{plugin}",
        # Called without a command, a plugin says what it is.
        version_arguments=(),
        version_digits=1,
        link_variables={f"{_CNI}/pkg/utils/buildversion.BuildVersion": f"v{CNI_VERSION}"},
        file=plugin,
        release=Release(url=archive, checksums_url=f"{archive}.sha256", member=f"./{plugin}"),
    )


_COREDNS = (
    "https://github.com/coredns/coredns/releases/download/v{version}/coredns_{version}_{os}_{arch}"
)
_RUNC = "https://github.com/opencontainers/runc/releases/download/v{version}"

NODE_PROGRAMS = (
    _containerd("containerd", "--version"),
    _containerd("containerd-shim-runc-v2", "-v"),
    _containerd("ctr", "--version"),
    Tool(
        name="runc",
        version=RUNC_VERSION,
        version_arguments=("--version",),
        version_digits=1,
        release=Release(url=f"{_RUNC}/runc.{{arch}}", checksums_url=f"{_RUNC}/runc.sha256sum"),
        debian=DebianFile("runc", "usr/sbin/runc"),
    ),
    _cni("main", "bridge"),
    _cni("ipam", "host-local"),
    Tool(
        name="coredns",
        version=COREDNS_VERSION,
        # A build of ours, with those of its plugins alone that the lab's nodes need.
        module="coredns",
        package="gpu-clusters.dev/lab/tools/coredns",
        version_arguments=("-version",),
        version_digits=2,
        release=Release(
            url=f"{_COREDNS}.tgz", checksums_url=f"{_COREDNS}.tgz.sha256", member="coredns"
        ),
    ),
    # kube-proxy writes its rules with it.
    Tool(
        name="iptables",
        version=IPTABLES_VERSION,
        version_arguments=("--version",),
        version_digits=1,
        debian=DebianFile(
            "iptables",
            "usr/sbin/xtables-nft-multi",
            libraries=("libxtables12", "libmnl0", "libnftnl11"),
            launcher="iptables.sh",
        ),
    ),
    Tool(
        name="pause",
        version=PAUSE_VERSION,
        module="pause",
        package="gpu-clusters.dev/lab/tools/pause",
        version_arguments=("--version",),
        version_digits=3,
        link_variables={"main.version": PAUSE_VERSION},
        on_path=False,
    ),
    Tool(
        name="busybox",
        version=BUSYBOX_VERSION,
        version_arguments=("--help",),
        version_digits=1,
        debian=DebianFile("busybox-static", "bin/busybox"),
        # One on PATH may need libraries, and then does not run alone in an image.
        on_path=False,
    ),
)
