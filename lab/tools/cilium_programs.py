"""The programs of Cilium, for labs whose real nodes enforce policies: nobody gets them who does not ask.

There is no official download: Cilium is published as images alone. The agent compiles what it loads into the
kernel at run time, so it needs a clang (18.1 or newer, says Cilium) and its own sources in C
(`lab.nodes.cilium_sources`).
"""

from __future__ import annotations

from lab.tools.model import DebianFile, Tool

CILIUM_VERSION = "1.20.2"
CLANG_VERSION = "19.1.7"

MODULE = "github.com/cilium/cilium"


def _cilium(name: str, package: str) -> Tool:
    return Tool(
        name=name,
        version=CILIUM_VERSION,
        module="cilium",
        package=f"{MODULE}/{package}",
        version_arguments=("--version",),
        version_digits=3,
        link_variables={f"{MODULE}/pkg/version.ciliumVersion": CILIUM_VERSION},
        file=package.rsplit("/", 1)[-1],
    )


CILIUM_PROGRAMS = (
    _cilium("cilium-agent", "daemon"),
    _cilium("cilium-operator", "operator"),
    _cilium("cilium-cni", "plugins/cilium-cni"),
    Tool(
        name="clang",
        version=CLANG_VERSION,
        version_arguments=("--version",),
        version_digits=1,
        debian=DebianFile(
            "clang-19",
            "usr/lib/llvm-19/bin/clang",
            libraries=(
                "libclang-cpp19",
                "libllvm19",
                "libedit2",
                "libbsd0",
                "libz3-4",
                "libxml2",
                "libicu72",
            ),
            launcher="clang.sh",
        ),
    ),
)
