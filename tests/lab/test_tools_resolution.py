"""Where a tool of the lab comes from."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lab.tools.cache import ToolCache
from lab.tools.catalogue import TOOLS, Platform, Tool, parse_version
from lab.tools.download import NetworkError
from lab.tools.model import Report, ToolError
from lab.tools.resolver import Resolver

PLATFORM = Platform("linux", "amd64")


def script(path: Path, says: str) -> Path:
    """A program that says this when asked for its version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


class Builds:
    """Stands for Go: remembers what it was asked for and makes programs that know their version."""

    def __init__(self, version: str | None = None) -> None:
        self.asked: list[list[str]] = []
        self.version = version

    def __call__(self, tools: Sequence[Tool], target: Path, report: Report) -> Mapping[str, Path]:
        self.asked.append([tool.name for tool in tools])
        report(f"building {len(tools)}")
        return {t.name: script(target / t.name, f"v{self.version or t.version}") for t in tools}


class Downloads:
    """Stands for the official releases."""

    def __init__(self, error: ToolError | None = None, have: Sequence[str] = ()) -> None:
        self.asked: list[str] = []
        self.error = error
        self.have = have

    def __call__(self, tool: Tool, platform: Platform, folder: Path) -> Path | None:
        self.asked.append(tool.name)
        if self.error:
            raise self.error
        return script(folder / tool.name, f"v{tool.version}") if tool.name in self.have else None


class World:
    """A cache, and a PATH whose first folder is empty and whose others have none of our tools."""

    def __init__(self, folder: Path) -> None:
        self.cache = ToolCache(folder / "tools")
        self.path = folder / "bin"
        self.said: list[str] = []

    def ensure(
        self,
        *names: str,
        build: Builds | None = None,
        download: Downloads | None = None,
        offline: bool = False,
        report: Report | None = None,
    ) -> Mapping[str, Path]:
        resolver = Resolver(
            cache=self.cache,
            platform=PLATFORM,
            offline=offline,
            download=download or Downloads(),
            build=build or Builds(),
        )
        return resolver.ensure([*names], report or self.said.append)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    made.path.mkdir()
    monkeypatch.setenv("PATH", f"{made.path}:/nowhere")
    return made


def test_a_tool_on_path_of_the_right_minor_version_is_used_and_named(world: World) -> None:
    program = script(world.path / "kube-apiserver", "Kubernetes v1.36.0")
    build = Builds()
    assert world.ensure("kube-apiserver", build=build) == {"kube-apiserver": program}
    assert build.asked == []
    assert world.said == [f"using kube-apiserver 1.36.0 from PATH ({program})"]


@pytest.mark.parametrize(
    ("name", "says", "told"),
    [
        ("kubectl", "v1.32.4", "it is kubectl 1.32.4"),
        ("helm", "v3.19.0", "it is helm 3.19.0"),
        ("etcd", "command not found", "it is etcd of an unknown version"),
    ],
)
def test_a_tool_on_path_of_another_version_is_not_used_and_the_user_is_told(
    world: World, name: str, says: str, told: str
) -> None:
    program = script(world.path / name, says)
    assert world.ensure(name)[name].is_relative_to(world.cache.folder)
    assert f"not using {program}: {told}" in world.said[0]
    assert TOOLS[name].accepted in world.said[0]


def test_what_was_made_once_is_taken_from_the_cache(world: World) -> None:
    first = world.ensure("etcd", "helm")
    build, download = Builds(), Downloads()
    assert world.ensure("etcd", "helm", build=build, download=download) == first
    assert (build.asked, download.asked) == ([], [])


@pytest.mark.parametrize(
    ("download", "asked", "built", "told"),
    [
        (
            Downloads(have=["etcd"]),
            "etcd helm",
            "helm",
            "downloaded etcd 3.6.14, checksum verified",
        ),
        # After the first network failure no other download is tried.
        (
            Downloads(error=NetworkError("https://example.test cannot be reached")),
            *("etcd", "etcd helm", "no downloads on this machine"),
        ),
        (
            Downloads(error=ToolError("https://x/etcd has SHA-256 ab, expected cd")),
            *("etcd helm", "etcd helm", "has SHA-256 ab, expected cd; building etcd instead"),
        ),
    ],
    ids=["there", "no network", "another checksum"],
)
def test_a_download_is_preferred_to_a_build(
    world: World, download: Downloads, asked: str, built: str, told: str
) -> None:
    build = Builds()
    found = world.ensure("etcd", "helm", build=build, download=download)
    assert download.asked == asked.split()
    assert build.asked == [[name] for name in built.split()]
    assert sum(told in line for line in world.said) == 1
    if download.have:
        assert (found["etcd"].parent / "origin").read_text() == "official download\n"


def test_one_build_makes_all_that_is_missing_of_a_module_and_builds_are_counted(
    world: World,
) -> None:
    build, download = Builds(), Downloads(have=["etcd"])
    names = ["kube-scheduler", "etcd", "kube-apiserver", "kube-controller-manager"]
    world.ensure(*names, build=build, download=download, offline=True)
    assert sorted(map(sorted, build.asked)) == [
        ["etcd"],
        ["kube-apiserver", "kube-controller-manager", "kube-scheduler"],
    ]
    assert download.asked == [], "offline"
    world.ensure("helm")
    assert world.said == ["step 1 of 2: building 1", "step 2 of 2: building 3", "building 1"]


def test_the_environment_variable_turns_downloads_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, offline in (("1", True), ("0", False)):
        monkeypatch.setenv("GPU_CLUSTERS_OFFLINE", value)
        assert Resolver().offline is offline


def test_a_program_that_says_another_version_than_it_should_is_never_cached(world: World) -> None:
    with pytest.raises(ToolError, match=r"says it is version 0\.0\.0, not 1\.36\.3"):
        world.ensure("kube-apiserver", build=Builds(version="0.0.0"))
    assert world.cache.find(TOOLS["kube-apiserver"], PLATFORM) is None


def test_a_broken_entry_is_replaced_and_what_a_killed_process_left_goes(world: World) -> None:
    entry = world.cache.entry(TOOLS["etcd"], PLATFORM)
    entry.mkdir(parents=True)  # a folder where the program should be
    left = world.cache.folder / ".tmp-0011"
    left.mkdir()
    assert world.ensure("etcd")["etcd"] == entry
    assert entry.is_file()
    assert not left.exists()


def test_an_interrupted_build_leaves_nothing_behind(world: World) -> None:
    class Interrupted(Builds):
        def __call__(self, *given: object) -> Mapping[str, Path]:
            super().__call__(*given)  # type: ignore[arg-type]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.ensure("etcd", build=Interrupted())
    assert [p.name for p in world.cache.folder.iterdir()] == [".lock"]


def test_two_at_the_same_time_build_once_and_the_second_says_what_it_waits_for(
    world: World,
) -> None:
    building, go_on = threading.Event(), threading.Event()

    class Slow(Builds):
        def __call__(self, *given: object) -> Mapping[str, Path]:
            building.set()
            assert go_on.wait(60)
            return super().__call__(*given)  # type: ignore[arg-type]

    def second_report(line: str) -> None:
        world.said.append(line)
        go_on.set()

    build = Slow()
    results: list[Mapping[str, Path]] = []
    first = threading.Thread(
        target=lambda: results.append(world.ensure("etcd", build=build, report=print))
    )
    first.start()
    assert building.wait(60)
    results.append(world.ensure("etcd", build=build, report=second_report))
    first.join()
    assert results[0] == results[1]
    assert build.asked == [["etcd"]]
    assert world.said[0].startswith("waiting for process ")


def test_an_unknown_tool_and_a_cache_that_cannot_be_written_are_told(world: World) -> None:
    with pytest.raises(ToolError, match=r"no tool 'kubeadm'; it knows etcd, kube-apiserver"):
        world.ensure("kubeadm")
    world.cache.folder.write_text("a file where the folder should be")
    with pytest.raises(ToolError, match=r"cannot write to the tool cache .*XDG_CACHE_HOME"):
        world.ensure("etcd")


def test_versions_are_read_as_each_program_writes_them() -> None:
    for output, version in (
        ("Kubernetes v1.36.3", "1.36.3"),
        ("etcd Version: 3.6.14\nGit SHA: v3.6.14\nGo Version: go1.26.8", "3.6.14"),
        ("Client Version: v1.32.4-dispatcher", "1.32.4"),
        ("v4.3.1+gabcdef0", "4.3.1"),
        ("command not found", None),
    ):
        assert parse_version(output) == version
    assert [TOOLS["etcd"].accepts(one) for one in ("3.60.1", "3", "3.6.1")] == [False, False, True]
