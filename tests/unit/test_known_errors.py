"""What programs say when something fails is told with its cause: one message for every known error."""

import re
from pathlib import Path

import pytest

from gpuclusters.compat import known_errors

TABLES = Path(known_errors.__file__).parent / "data" / "known_errors"
AREAS = sorted(path.stem for path in TABLES.glob("*.yaml"))

# As the programs print them: from their sources and from threads about them, see `source` of each table.
SAID: dict[str, tuple[str, ...]] = {
    "rke2.node-name-taken": (
        "server is not ready: Node password rejected, duplicate hostname or contents of",
    ),
    "rke2.etcd-member-exists": ("etcd cluster join failed: duplicate node name found",),
    "rke2.foreign-ca": ("token CA hash does not match the Cluster CA certificate hash: a != b",),
    "rke2.token-rejected": ("https://x:9345/v1-rke2/config: 401 Unauthorized",),
    "rke2.critical-settings-differ": ("critical configuration value mismatch",),
    "rke2.clock-skew": ("x509: certificate has expired or is not yet valid: current time",),
    "rke2.etcd-user-missing": ("missing required: user: unknown user etcd",),
    "rke2.kernel-parameters": (
        "invalid kernel parameter value vm.overcommit_memory=0 - expected 1",
    ),
    "rke2.default-runtime-missing": ("default runtime nvidia was not found",),
    "rke2.no-default-route": ("no default routes found in /proc/net/route",),
    "rke2.inotify-limits": ("failed to create fsnotify watcher: too many open files",),
    "rke2.disk-full": ("write /var/lib/rancher/x: no space left on device",),
    "rke2.port-taken": ("listen tcp :9345: bind: address already in use",),
    "rke2.server-unreachable": ("dial tcp 10.0.0.1:9345: connect: connection refused",),
    "rke2.image-not-pulled": ("failed to pull images from /var/lib/rancher/rke2/agent/images",),
    "rke2.etcd-learner": ("etcdserver: too many learner members in cluster",),
    "driver.module-unsigned": (
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
    ),
    "driver.branch-too-new": ("NVRM: The NVIDIA probe routine ... will ignore this GPU",),
    "driver.open-modules-too-new": ("does not include the required GPU System Processor (GSP)",),
    "driver.library-mismatch": ("Failed to initialize NVML: Driver/library version mismatch",),
    "driver.fabric-manager-version": (
        "fabric manager NVIDIA GPU driver interface version 580.95.05 don't match with driver version",
    ),
    "driver.fabric-not-ready": ("CUDA error: system not yet initialized",),
    "driver.inforom-corrupt": ("infoROM is corrupted at gpu 0000:07:00.0",),
    "driver.prebuilt-modules-missing": (
        "The following packages have unmet dependencies:\n linux-modules-nvidia-580-server-generic",
        "nothing provides kmod-nvidia-latest = 3:580.95.05 needed by nvidia-driver",
    ),
    "driver.package-not-found": (
        "E: Unable to locate package nvidia-utils-580-server",
        "Error: Unable to find a match: nvidia-driver-580.95.05",
    ),
    "driver.module-stream": (
        "The operation would result in switching of module: it is not possible to switch enabled "
        "streams of a module",
    ),
    "driver.package-lock": (
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812",
        "System management is locked by the application with pid 812 (zypper).",
    ),
    "driver.no-device": ("No devices were found",),
    "driver.module-not-loaded": (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-40-generic",
    ),
    "driver.wrong-kernel": ("modprobe: ERROR: could not insert 'nvidia': Invalid module format",),
    "container.boot-too-slow": (
        "Failed to create pod sandbox: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        "Error: failed to create containerd task: CreateContainer failed: context deadline exceeded",
    ),
    "container.cdi-device-unknown": (
        "Error: CDI device injection failed: unresolvable CDI devices nvidia.com/pgpu=1",
    ),
    "container.cdi-timeout-in-guest": (
        'failed to inject devices after CDI timeout of 100 seconds: device "nvidia.com/gpu=0"',
    ),
    "container.pod-resources-off": ("cold plug: rpc error: PodResources API Get method disabled",),
    "container.annotation-refused": (
        "annotation io.katacontainers.config.hypervisor.default_vcpus is not enabled",
    ),
    "container.no-node-for-runtime-class": (
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. preemption: none",
    ),
    "container.no-gpu-left": ("0/2 nodes are available: 2 Insufficient nvidia.com/pgpu.",),
    "container.group-not-viable": ("vfio 0000:86:00.0: group 20 is not viable",),
    "guest.fabric-not-ready": (
        "RuntimeError: CUDA error: system not yet initialized",
        "cuInit failed: 802",
        "CUDA_ERROR_SYSTEM_NOT_READY",
    ),
    "guest.no-device-initialized": ("cuInit(0) returned 3", "CUDA error: initialization error"),
    "guest.fabric-in-progress": (
        "    Fabric\n        State : In Progress",
        "Fabric State : In Progress",
    ),
    "guest.no-nvlink": ("hgx-01:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct",),
    "rootless.legacy-mode": (
        "nvidia-container-cli: mount error: failed to add device rules: unable to find any existing "
        "device filters attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed",
    ),
    "rootless.cdi-device-unknown": (
        'could not select device driver "cdi" with capabilities: [[gpu]]',
    ),
    "rootless.gpus-lost": ("Failed to initialize NVML: Unknown Error",),
    "rootless.rootless-containerd": (
        "[ERROR] conflicts with containerd-rootless.service, uninstall it first",
    ),
    "rootless.subordinate-ids": (
        "No subuid ranges found for user 1001 (erin)",
        "failed to setup UID/GID map: newuidmap 412 [0 1001 1] failed",
    ),
    "rootless.network-not-up": ('exec: "slirp4netns": executable file not found in $PATH',),
    "rootless.user-namespaces": (
        "[rootlesskit:parent] error: failed to start the child: fork/exec /proc/self/exe: "
        "operation not permitted",
    ),
    "rootless.account-not-local": ("user erin does not exist in /etc/passwd",),
    "rootless.no-user-bus": (
        "Failed to connect to bus: $DBUS_SESSION_BUS_ADDRESS and $XDG_RUNTIME_DIR not defined",
        "Failed to connect to bus: No medium found",
    ),
    "rootless.rootful-docker": ("[ERROR] rootful Docker (/var/run/docker.sock) is accessible",),
    "rootless.linger-refused": ("Could not enable linger: Access denied",),
    "rootless.image-not-pulled": (
        "dial tcp: lookup registry-1.docker.io: no such host",
        "pull access denied for x, repository does not exist",
    ),
    "rootless.package-held": (
        "E: Held packages were changed and -y was used without --allow-change-held-packages.",
    ),
    "rootless.package-not-found": (
        "E: Version '5:28.9.1' for 'docker-ce' was not found",
        "E: Unable to locate package docker-ce-rootless-extras",
    ),
    "rootless.repository-not-set-up": ("the key cannot be fetched from download.docker.com",),
    "rootless.kernel-modules-missing": ("install linux-modules-extra-6.8.0-1013-gcp",),
    "rootless.rootful-docker-in-use": ("Docker of root has containers: db, web",),
    "rootless.package-lock": ("E: Could not get lock /var/lib/apt/lists/lock",),
    "usernetes.checksums-of-another-tag": (
        "sha256sum: /SHA256SUMS.d/cni-plugins-linux-amd64-v1.6.2.tgz.sha256: No such file or directory",
    ),
    "usernetes.toolkit-version": (
        "E: Version '9.9.9-1' for 'nvidia-container-toolkit' was not found",
    ),
    "usernetes.cdi-device-unknown": (
        "Error response from daemon: CDI device injection failed: unresolvable CDI devices "
        "nvidia.com/gpu=all",
    ),
    "usernetes.port-taken": (
        "Bind for 0.0.0.0:6443 failed: port is already allocated",
        "listen udp4 0.0.0.0:8472: bind: address already in use",
    ),
    "usernetes.network-overlap": (
        "failed to create network: invalid pool request: Pool overlaps with other one on this address space",
    ),
    "usernetes.rp-filter": ('"net.ipv4.conf.default.rp_filter" must be 0 or 2',),
    "usernetes.cpu-not-delegated": ("cpu controller needs to be delegated",),
    "usernetes.pull-rate-limit": (
        "toomanyrequests: You have reached your unauthenticated pull rate limit.",
    ),
    "usernetes.disk-full": ("write /var/lib/x: no space left on device",),
    "usernetes.registry-unreachable": (
        "failed to resolve source metadata for docker.io/kindest/node:v1.35.0",
        "curl: (6) Could not resolve host: github.com",
    ),
    "usernetes.join-token-expired": (
        'could not find a JWS signature in the cluster-info ConfigMap for token ID "abcdef"',
    ),
    "usernetes.clock-skew": ("x509: certificate has expired or is not yet valid",),
    "usernetes.foreign-ca": (
        "cluster CA found in cluster-info ConfigMap is invalid: none of the public keys "
        '"sha256:ab" are pinned',
    ),
    "usernetes.control-plane-unreachable": (
        "dial tcp 10.1.0.2:6443: connect: connection refused",
        'Get "https://10.1.0.2:6443/": context deadline exceeded',
    ),
    "usernetes.node-name-taken": (
        'a Node with name "u7s-02" and status "Ready" already exists in the cluster',
    ),
    "usernetes.earlier-attempt": (
        "[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: /etc/kubernetes/kubelet.conf already exists",
    ),
    "usernetes.kubelet-not-up": (
        "[kubelet-check] The kubelet is not healthy after 4m0.000985s",
        "error: timed out waiting for the condition",
    ),
    "usernetes.no-driver-access": ("ERROR: failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND",),
    "ladder-usernetes.cdi-name-by-uuid": ("unresolvable CDI devices nvidia.com/gpu=GPU-6f2c",),
    "ladder-usernetes.cdi-device-unknown": ("unresolvable CDI devices nvidia.com/gpu=0",),
    "ladder-usernetes.legacy-mode": (
        "bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted",
    ),
    "ladder-usernetes.plugin-without-nvml": (
        "error creating plugin manager: invalid device discovery strategy",
    ),
    "ladder-usernetes.gpus-lost": ("Failed to initialize NVML: Unknown Error",),
    "ladder-usernetes.no-driver": ("No devices were found",),
    "ladder-usernetes.library-mismatch": (
        "Failed to initialize NVML: Driver/library version mismatch",
    ),
    "ladder.no-code-for-gpu": (
        "CUDA error: no kernel image is available for execution on the device",
    ),
    "ladder-usernetes.user-id-out-of-range": (
        "failed to Lchown /x for UID 197609: lchown /x: invalid argument",
    ),
    "ladder.dataset-missing": ("train.py: no FashionMNIST in /data",),
    "ladder.gpus-taken": ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",),
    "ladder-usernetes.control-plane-taint": (
        "1 node(s) had untolerated taint(s) {node-role.kubernetes.io/control-plane: }",
    ),
    "ladder-usernetes.node-uninitialized": (
        "1 node(s) had untolerated taint(s) {node.cloudprovider.kubernetes.io/uninitialized: true}",
    ),
    "ladder-usernetes.dns-unreachable": ("wget: bad address 'kubernetes.default'",),
    "ladder-usernetes.api-unreachable": ("dial tcp 10.96.0.1:443: i/o timeout",),
    "ladder-gke.no-driver": (
        "F0101 00:00:00.000000       1 nvidia_gpu.go:141] failed to initialize nvml: ERROR_DRIVER_NOT_LOADED",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    ),
    "ladder-gke.gpus-unregistered": (
        "E0101 00:00:00.000000       1 nvidia_gpu.go:151] failed to start GPU device manager: x",
    ),
    "ladder-gke.driver-not-found": (
        "[Vector addition of 50000 elements]\nCUDA driver version is insufficient for CUDA runtime version",
    ),
    "ladder-gke.gpus-lost": ("Failed to initialize NVML: Unknown Error",),
    "ladder-gke.library-mismatch": ("Failed to initialize NVML: Driver/library version mismatch",),
    "ladder-gke.names-not-found": ("bad address reach-0.reach: try again",),
    "operator.runtime-not-configured": ('no runtime for "nvidia" is configured',),
    "operator.containerd-socket": (
        "error signaling containerd: unable to dial: connect: no such file or directory",
    ),
    "operator.legacy-toolkit": ("unresolvable CDI devices management.nvidia.com/gpu=all",),
    "operator.fabric-not-ready": ("Error 802: system not yet initialized",),
    "operator.inforom-corrupt": (
        "nvidia-smi failed with exit code 14",
        "WARNING: infoROM is corrupted at gpu 0000:07:00.0",
    ),
    "operator.default-runtime-missing": ("default runtime nvidia was not found",),
    "operator.inotify-limits": ("failed to create fsnotify watcher: too many open files",),
    "operator.branch-too-new": ("supported through the NVIDIA 580.xx Legacy drivers",),
    "operator.open-modules-too-new": ("does not include the required GPU System Processor (GSP)",),
    "operator.kernel-headers-missing": ("Could not resolve Linux kernel version",),
    "operator.module-unsigned": ("could not insert 'nvidia': Key was rejected by service",),
    "operator.image-not-pulled": ('Back-off pulling image "nvcr.io/nvidia/driver:580"',),
    "operator.pod-security": ('pods "x" is forbidden: violates PodSecurity "restricted:latest"',),
    "operator.out-of-memory": ("container toolkit terminated, OOMKilled",),
    "service-vm.tool-missing": ("exit status 127: sh: 1: virsh: not found",),
    "service-vm.group-not-viable": (
        "vfio 0000:05:00.0: group 14 is not viable. Please ensure all devices within it are bound",
    ),
    "service-vm.not-on-vfio": ("PCI device 0000:05:00.0 is not bound to vfio-pci",),
    "service-vm.no-such-device": (
        "error: Failed to open file '/sys/bus/pci/devices/0000:99:00.0/vendor': No such file or directory",
    ),
    "service-vm.no-such-function": (
        "error: Device 0000:99:00.0 not found: could not access config",
    ),
    "service-vm.network-in-use": (
        "error: internal error: Network is already in use by interface br0",
    ),
    "service-vm.function-in-use": (
        "error: Requested operation is not valid: PCI device 0000:05:00.0 is in use by driver QEMU, "
        "already in use by domain other",
    ),
    "service-vm.uuid-taken": (
        "error: operation failed: domain 'fm' already exists with uuid 6f0d",
    ),
    "service-vm.no-memory": (
        "qemu-system-x86_64: cannot set up guest memory: Cannot allocate memory",
    ),
}


@pytest.mark.parametrize(("code", "text"), [(c, t) for c, texts in SAID.items() for t in texts])
def test_a_message_is_told_with_its_cause(code: str, text: str) -> None:
    found = known_errors.explain(code.partition(".")[0], f"a line before\n{text}\na line after")
    assert found is not None
    assert found.code == code
    assert found.cause
    assert found.remedy


def test_every_known_error_has_a_message() -> None:
    assert {error.code for area in AREAS for error in known_errors.known(area)} == set(SAID)


@pytest.mark.parametrize("area", AREAS)
def test_codes_are_of_their_area_and_each_pattern_stands_once(area: str) -> None:
    errors = known_errors.known(area)
    assert all(re.fullmatch(rf"{area}\.[a-z0-9-]+", error.code) for error in errors)
    assert len({error.says for error in errors}) == len({error.code for error in errors})
    assert len(errors) == len({error.code for error in errors})


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize(
    "text",
    [
        "Successfully pulled image in 8.02s",
        "epoch 802 loss 0.3",
        "Back-off restarting failed container",
        "Readiness probe failed: HTTP probe failed with statuscode: 503",
        "all is well",
    ],
)
def test_a_message_of_another_kind_is_left_alone(area: str, text: str) -> None:
    assert known_errors.explain(area, text) is None
    assert known_errors.advice(area, text) == ""


@pytest.mark.parametrize(
    ("code", "final"),
    [
        ("rke2.token-rejected", True),
        ("rke2.disk-full", True),
        ("rke2.server-unreachable", False),
        ("rke2.inotify-limits", False),
    ],
)
def test_waiting_helps_where_the_cause_can_pass(code: str, final: bool) -> None:
    assert {e.code: e.final for e in known_errors.known("rke2")}[code] is final


def test_the_newest_line_of_a_log_counts() -> None:
    log = "connect: connection refused\n401 Unauthorized\nall is well"
    found = known_errors.explain_newest("rke2", log)
    assert found is not None
    assert found.code == "rke2.token-rejected"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("#1 [internal]\nbind: taken\nmake: *** [up] Error 1\n", "bind: taken"),
        ("level=info x\nlevel=error a\nlevel=info y\nlevel=fatal b\n", "level=fatal b"),
        ("make: *** [up] Error 1", "make: *** [up] Error 1"),
        ("", ""),
    ],
)
def test_last_words_are_those_that_say_what_failed(log: str, words: str) -> None:
    assert known_errors.last_words(log) == words


def test_as_many_last_words_as_are_asked_for() -> None:
    assert known_errors.last_words("error 1\nerror 2\ninfo\nerror 3", 2) == "error 2 | error 3"
