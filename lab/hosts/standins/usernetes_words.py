"""What Docker, compose and kubeadm say when a step of a node fails, as their sources have it."""

from __future__ import annotations

BUILD_FAILS = {
    "wrong-tag": "#9 0.4 grep: /tmp/SHA256SUMS.d/cni-plugins-v1.6.2: No such file or directory",
    "toolkit-version": (
        "#14 3.1 E: Version '{version}-1' for 'nvidia-container-toolkit' was not found"
    ),
    "no-egress": "#9 10.2 curl: (6) Could not resolve host: github.com",
    "rate-limit": "failed to solve: toomanyrequests: You have reached your pull rate limit.",
    "disk-full": "failed to solve: write /layer.tar: no space left on device",
}
START_FAILS = {
    "cdi-unresolvable": (
        "Error response from daemon: CDI device injection failed: unresolvable CDI devices "
        "nvidia.com/gpu=all"
    ),
    "port-taken": (
        "Error response from daemon: failed to set up container networking: Bind for 0.0.0.0:6443 failed: "
        "port is already allocated"
    ),
    "subnet-overlap": (
        "failed to create network usernetes_default: Error response from daemon: invalid pool request: Pool "
        "overlaps with other one on this address space"
    ),
    "rp-filter": (
        '[ERROR] sysctl value "net.ipv4.conf.default.rp_filter" must be 0 (disabled) or 2 (loose) in the '
        "container engine's network namespace"
    ),
    "delegation": "UserNS: cpu controller needs to be delegated",
}
JOIN_FAILS = {
    "token-expired": (
        "error execution phase preflight: couldn't validate the identity of the API Server: could not "
        'find a JWS signature in the cluster-info ConfigMap for token ID "abcdef"'
    ),
    "clock-skew": (
        "error execution phase preflight: tls: failed to verify certificate: x509: certificate has "
        "expired or is not yet valid"
    ),
    "port-closed": (
        "error execution phase preflight: couldn't validate the identity of the API Server: dial tcp "
        "10.128.0.6:6443: connect: connection refused"
    ),
    "other-cluster": (
        "error execution phase preflight: cluster CA found in cluster-info ConfigMap is invalid: none of the "
        "public keys are pinned"
    ),
    "kubelet-down": (
        "[kubelet-check] Initial timeout of 4m0s passed.\nerror: timed out waiting for the condition"
    ),
}
