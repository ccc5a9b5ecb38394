"""What the programs of a node are told: containerd, kubelet, CNI. All paths are those inside of the node."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab import kata_runtime
from lab.control_plane import NodeSpec
from lab.images.names import PAUSE
from lab.nodes import capacity, dns, proxy
from lab.nodes.distribution import UPSTREAM, Distribution
from lab.nodes.folder import RealNodeFolder

KATA_HANDLER = kata_runtime.HANDLER
"""Here a second runc, because there is no virtual machine to start."""
KATA_STAND_IN_ROOT = "/run/runc-kata-stand-in"
"""Only containers of that handler are listed below it, which tells the two apart."""
BRIDGE = "cni0"
"""To which the pods of a node are linked."""
ADDRESSES = "/run/cni-addresses"
"""Which addresses its pods have."""
_KUBELET_HEALTH = "127.0.0.1:10248"


def containerd(folder: RealNodeFolder, runc: Path, distribution: Distribution = UPSTREAM) -> str:
    """The configuration of containerd (TOML)."""
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""\
version = 3
imports = {_listed(distribution.containerd_drop_ins)}
root = '{distribution.containerd_root}'
state = '{distribution.containerd_state}'

[grpc]
  address = '{distribution.containerd_socket}'

[plugins.'io.containerd.internal.v1.opt']
  path = '{distribution.containerd_root}/opt'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE}'

[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '{folder.registries}'

[{runtime}]
  # Root without CAP_SYS_RESOURCE may not lower the score of a process.
  restrict_oom_score_adj = true
  disable_apparmor = true
  cdi_spec_dirs = {_listed(distribution.cdi)}

[{runtime}.cni]
  bin_dirs = ['{folder.plugins}']
  conf_dir = '{folder.networks}'
  use_internal_loopback = true

{_handler(runtime, "runc", runc, "/run/runc")}
{_handler(runtime, KATA_HANDLER, runc, KATA_STAND_IN_ROOT)}"""


def _listed(values: Sequence[str]) -> str:
    return f"[{', '.join(repr(value) for value in values)}]"


def _handler(runtime: str, name: str, runc: Path, root: str) -> str:
    table = f"{runtime}.containerd.runtimes.{name}"
    annotations = "  pod_annotations = ['io.katacontainers.*', 'cdi.k8s.io/*']\n"
    return f"""\
[{table}]
  runtime_type = 'io.containerd.runc.v2'
{annotations if name == KATA_HANDLER else ""}
[{table}.options]
  BinaryName = '{runc}'
  Root = '{root}'
  SystemdCgroup = false
"""


def registry(address: str, port: int) -> str:
    """How containerd reaches any registry (TOML): the lab's own answers for all, and no other is asked."""
    return f"""\
server = "http://{address}:{port}"

[host."http://{address}:{port}"]
  capabilities = ["pull", "resolve"]
"""


def kubelet(
    folder: RealNodeFolder,
    node: NodeSpec,
    cgroup_root: str,
    distribution: Distribution = UPSTREAM,
) -> str:
    """The kubelet's configuration (JSON, which is YAML)."""
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Machines with version 1 of cgroups are refused by default.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup_root}",
        "containerRuntimeEndpoint": f"unix://{distribution.containerd_socket}",
        "failSwapOn": False,
        "readOnlyPort": 0,
        "tlsCertFile": str(folder.pki / "serving.crt"),
        "tlsPrivateKeyFile": str(folder.pki / "serving.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(folder.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDomain": dns.DOMAIN,
        "clusterDNS": [dns.ADDRESS],
        "makeIPTablesUtilChains": False,
        # The disk is the machine's: how full it is says nothing about the lab.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": str(capacity.EVICTION_BYTES),
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "oomScoreAdj": 0,
        # Everything is on one machine: the usual modesty only makes pods start late.
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
        "serializeImagePulls": False,
        **capacity.kubelet_settings(node.capacity, node.allocatable),
    }
    if node.taints:
        document["registerWithTaints"] = [asdict(taint) for taint in node.taints]
    return json.dumps(document, indent=2) + "\n"


def network(pod_range: str) -> str:
    """The CNI configuration of a node: a bridge, and addresses out of the range that the cluster gave it."""
    document: Mapping[str, Any] = {
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": True,
                "hairpinMode": True,
                # Addresses of pods are known in the whole lab; nothing beyond it can be reached.
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": pod_range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": ADDRESSES,
                },
            }
        ],
    }
    return json.dumps(document, indent=2) + "\n"


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """How a program of a node is started.

    `answers` is where it listens once it works: the path of a socket, or address and port.
    """

    command: tuple[str, ...]
    answers: str


def programs(
    folder: RealNodeFolder,
    address: str,
    tools: Mapping[str, Path],
    distribution: Distribution = UPSTREAM,
) -> dict[str, ProgramLine]:
    """Each program of a node, in the order of starting."""
    told = distribution.containerd_configuration or str(folder.containerd_configuration)
    return {
        "containerd": ProgramLine(
            (str(tools["containerd"]), "--config", told), distribution.containerd_socket
        ),
        "kubelet": ProgramLine(
            (
                str(tools["kubelet"]),
                f"--config={folder.kubelet_configuration}",
                f"--config-dir={distribution.kubelet_drop_ins}",
                f"--kubeconfig={folder.kubeconfig}",
                "--root-dir=/var/lib/kubelet",
                "--cert-dir=/var/lib/kubelet/pki",
                f"--hostname-override={folder.name}",
                f"--node-ip={address}",
            ),
            _KUBELET_HEALTH,
        ),
        proxy.NAME: ProgramLine(proxy.command(folder, address, tools), proxy.LISTENS),
        dns.NAME: ProgramLine(dns.command(folder, tools), dns.listens(address)),
    }
