"""The command line of every process of the control plane."""

from collections.abc import Mapping
from pathlib import Path

from lab.control_plane.layout import Layout
from lab.control_plane.pki import CA, SERVICE_ACCOUNT, SERVING
from lab.control_plane.ports import LOOPBACK

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
# Not one of the control plane's processes, but a client with a kubeconfig of its own (`lab.kubelet`).
KUBELET = "kubelet"

# In the order in which they are started; stopped in reverse.
PROCESSES = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
PORT_NAMES = (*PROCESSES, "etcd-peer")

SERVICE_RANGE = "10.96.0.0/16"
# Room for 32768 nodes of 256 pods, and apart from the services.
POD_RANGE = "10.128.0.0/9"


def command_lines(
    layout: Layout, ports: Mapping[str, int], tools: Mapping[str, Path]
) -> dict[str, list[str]]:
    """What to execute, by name of the process."""
    arguments = {
        ETCD: _etcd(layout, ports),
        API_SERVER: _api_server(layout, ports),
        CONTROLLER_MANAGER: _controller_manager(layout, ports),
        SCHEDULER: _scheduler(layout, ports),
    }
    return {name: [str(tools[name]), *arguments[name]] for name in PROCESSES}


def _etcd(layout: Layout, ports: Mapping[str, int]) -> list[str]:
    client = f"https://{LOOPBACK}:{ports[ETCD]}"
    peer = f"https://{LOOPBACK}:{ports['etcd-peer']}"
    ca, certificate, key = _files(layout, SERVING)
    return [
        "--name=lab",
        f"--data-dir={layout.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=lab={peer}",
        f"--trusted-ca-file={ca}",
        f"--cert-file={certificate}",
        f"--key-file={key}",
        "--client-cert-auth",
        f"--peer-trusted-ca-file={ca}",
        f"--peer-cert-file={certificate}",
        f"--peer-key-file={key}",
        "--peer-client-cert-auth",
        # A lab may lose its last second when the machine loses power; disks of CI machines take
        # long for fsync.
        "--unsafe-no-fsync",
        # With the data of one process, ten ticks to elect a leader are a second of waiting.
        "--heartbeat-interval=20",
        "--election-timeout=100",
        "--auto-compaction-retention=5m",
        "--log-level=warn",
    ]


def _api_server(layout: Layout, ports: Mapping[str, int]) -> list[str]:
    ca, certificate, key = _files(layout, SERVING)
    _, etcd_certificate, etcd_key = _files(layout, "etcd-client")
    _, kubelet_certificate, kubelet_key = _files(layout, "kubelet-client")
    return [
        f"--etcd-servers=https://{LOOPBACK}:{ports[ETCD]}",
        f"--etcd-cafile={ca}",
        f"--etcd-certfile={etcd_certificate}",
        f"--etcd-keyfile={etcd_key}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={ports[API_SERVER]}",
        # Its address is loopback, which the Endpoints of the service `kubernetes` may not hold.
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={ca}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={layout.pki / f'{SERVICE_ACCOUNT}.pub'}",
        f"--service-account-signing-key-file={layout.key(SERVICE_ACCOUNT)}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={ca}",
        f"--kubelet-client-certificate={kubelet_certificate}",
        f"--kubelet-client-key={kubelet_key}",
        "--shutdown-send-retry-after=false",
        "--profiling=false",
    ]


def _controller_manager(layout: Layout, ports: Mapping[str, int]) -> list[str]:
    return [
        *_controller(layout, ports, CONTROLLER_MANAGER),
        "--use-service-account-credentials",
        f"--root-ca-file={layout.certificate(CA)}",
        f"--service-account-private-key-file={layout.key(SERVICE_ACCOUNT)}",
        f"--cluster-signing-cert-file={layout.certificate(CA)}",
        f"--cluster-signing-key-file={layout.key(CA)}",
        "--allocate-node-cidrs",
        f"--cluster-cidr={POD_RANGE}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        # Everything is on one machine: the usual modesty only makes namespaces go slowly.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _scheduler(layout: Layout, ports: Mapping[str, int]) -> list[str]:
    return _controller(layout, ports, SCHEDULER)


def _controller(layout: Layout, ports: Mapping[str, int], name: str) -> list[str]:
    _, certificate, key = _files(layout, SERVING)
    return [
        f"--kubeconfig={layout.kubeconfig_of(name)}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports[name]}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        "--leader-elect=false",
        "--profiling=false",
    ]


def _files(layout: Layout, name: str) -> tuple[Path, Path, Path]:
    return layout.certificate(CA), layout.certificate(name), layout.key(name)
