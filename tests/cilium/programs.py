"""The programs of Cilium, for real nodes of tests that enforce policies, and its sources in C.

There is no official download: Cilium is published as images alone. The agent compiles what it loads into the
kernel at run time, so it needs a clang (18.1 or newer, says Cilium) and its own sources.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.tools.cache import ToolCache
from lab.tools.catalogue import host_platform
from lab.tools.go_program import module_folder
from lab.tools.model import DebianFile, Report, Tool
from lab.tools.resolver import Resolver

HERE = Path(__file__).parent

CILIUM_VERSION = "1.20.2"
CLANG_VERSION = "19.1.7"

MODULE = "github.com/cilium/cilium"


def _cilium(name: str, package: str) -> Tool:
    return Tool(
        name=name,
        version=CILIUM_VERSION,
        module=str(HERE),
        package=f"{MODULE}/{package}",
        version_arguments=("--version",),
        version_digits=3,
        link_variables={f"{MODULE}/pkg/version.ciliumVersion": CILIUM_VERSION},
        file=package.rsplit("/", 1)[-1],
    )


_PROGRAMS = (
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
            launcher=str(HERE / "clang.sh"),
        ),
    ),
)
PROGRAMS = {tool.name: tool for tool in _PROGRAMS}


def missing() -> list[str]:
    """Those that are not in the cache."""
    cache = ToolCache()
    return [name for name, tool in PROGRAMS.items() if cache.find(tool, host_platform()) is None]


def ensure(report: Report) -> dict[str, Path]:
    """All of them by name, built where they are not in the cache: ten to thirty minutes on two cores.

    Raises:
        ToolError: one cannot be had; one sentence that says why.
    """
    return Resolver(tools=PROGRAMS).ensure([*PROGRAMS], report)


_NOT_NEEDED = ("tests", "complexity-tests", "test-progs")


def kept() -> Path:
    """Where they are once they were fetched."""
    return ToolCache().folder / f"cilium-sources-{CILIUM_VERSION}"


def sources(report: Report) -> Path:
    """The folder with them, out of the cache or fetched now.

    Raises:
        ToolError: they cannot be had; one sentence that says why.
    """
    folder = kept()
    if not folder.exists():
        with ToolCache().lock(report):
            # Another process may have fetched them while this one waited.
            if not folder.exists():
                _copy(module_folder(HERE, MODULE, report), folder)
    return folder


def _copy(module: Path, folder: Path) -> None:
    with ToolCache().workspace() as made:
        source, target = module / "bpf", made / folder.name
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_NOT_NEEDED))
        # In Go's cache nothing may be written, and what is copied from here is to be removed some day.
        for path in [target, *target.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        target.rename(folder)
