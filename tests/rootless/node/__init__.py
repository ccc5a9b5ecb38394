"""A rootless node beside the lab's control plane: kubelet and containerd of an account, as in Usernetes.

    with running(folder, RootlessSpec(lab, NodeSpec("rootless-1"))) as node:
        node.output("nvidia-ctk", "cdi", "list")

The host is a machine of its own within this one (`private_machine`). On it an unprivileged account has
subordinate ids and cgroups; rootlesskit and slirp4netns make the namespaces in which containerd and the
kubelet run. Our own scripts for hosts and nodes do what they do elsewhere; Docker, which would make the
namespaces out of an image, is left out. docs/lab.md says what of it is a stand-in.
"""
