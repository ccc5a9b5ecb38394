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


def script(path: Path, version: str) -> Path:
    """A program that says it has this version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{path.name} v{version}'\n")
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
        return {t.name: script(target / t.name, self.version or t.version) for t in tools}


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
        return script(folder / tool.name, tool.version) if tool.name in self.have else None


@pytest.fixture
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first folder of a PATH on which none of our tools is."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/nowhere")
    return folder


@pytest.fixture
def said() -> list[str]:
    return []


def resolver(
    tmp_path: Path,
    *,
    build: Builds | None = None,
    download: Downloads | None = None,
    offline: bool = False,
) -> Resolver:
    return Resolver(
        cache=ToolCache(tmp_path / "tools"),
        platform=PLATFORM,
        offline=offline,
        download=download or Downloads(),
        build=build or Builds(),
    )


def test_a_tool_on_path_of_the_right_minor_version_is_used_and_named(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    program = script(path_folder / "kube-apiserver", "1.36.0")
    build = Builds()
    found = resolver(tmp_path, build=build).ensure(["kube-apiserver"], said.append)
    assert found == {"kube-apiserver": program}
    assert build.asked == []
    assert said == [f"using kube-apiserver 1.36.0 from PATH ({program})"]


@pytest.mark.parametrize(("name", "version"), [("kubectl", "1.32.4"), ("helm", "3.19.0")])
def test_a_tool_on_path_of_another_version_is_not_used_and_the_user_is_told(
    tmp_path: Path, path_folder: Path, said: list[str], name: str, version: str
) -> None:
    script(path_folder / name, version)
    found = resolver(tmp_path).ensure([name], said.append)
    assert found[name].is_relative_to(tmp_path / "tools")
    assert f"not using {path_folder / name}: it is {name} {version}" in said[0]
    assert TOOLS[name].accepted in said[0]


def test_a_program_on_path_that_does_not_say_its_version_is_not_used(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    broken = path_folder / "etcd"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    found = resolver(tmp_path).ensure(["etcd"], said.append)
    assert found["etcd"] != broken
    assert "of an unknown version" in said[0]


def test_what_was_made_once_is_taken_from_the_cache(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    first = resolver(tmp_path).ensure(["etcd", "helm"], said.append)
    build = Builds()
    download = Downloads()
    again = resolver(tmp_path, build=build, download=download).ensure(["etcd", "helm"], said.append)
    assert again == first
    assert build.asked == []
    assert download.asked == []


def test_a_download_is_preferred_to_a_build(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    build = Builds()
    download = Downloads(have=["etcd"])
    found = resolver(tmp_path, build=build, download=download).ensure(["etcd", "helm"], said.append)
    assert build.asked == [["helm"]]
    assert (found["etcd"].parent / "origin").read_text() == "official download\n"
    assert "downloaded etcd 3.6.14, checksum verified" in said


def test_one_build_makes_all_that_is_missing_of_a_module(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    build = Builds()
    names = ["kube-scheduler", "etcd", "kube-apiserver", "helm", "kube-controller-manager"]
    resolver(tmp_path, build=build).ensure(names, said.append)
    assert sorted(map(sorted, build.asked)) == [
        ["etcd"],
        ["helm"],
        ["kube-apiserver", "kube-controller-manager", "kube-scheduler"],
    ]


def test_after_the_first_network_failure_no_other_download_is_tried(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    build = Builds()
    download = Downloads(error=NetworkError("https://example.test cannot be reached"))
    resolver(tmp_path, build=build, download=download).ensure(["etcd", "helm"], said.append)
    assert download.asked == ["etcd"]
    assert build.asked == [["etcd"], ["helm"]]
    assert sum("no downloads on this machine" in line for line in said) == 1


def test_a_download_that_fails_its_checksum_is_reported_and_built_instead(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    build = Builds()
    download = Downloads(error=ToolError("https://example.test/etcd has SHA-256 ab, expected cd"))
    resolver(tmp_path, build=build, download=download).ensure(["etcd", "helm"], said.append)
    assert download.asked == ["etcd", "helm"]
    assert build.asked == [["etcd"], ["helm"]]
    assert "has SHA-256 ab, expected cd; building etcd instead" in said[0]


def test_offline_means_no_download_at_all(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    download = Downloads(have=["etcd"])
    resolver(tmp_path, download=download, offline=True).ensure(["etcd"], said.append)
    assert download.asked == []


def test_the_environment_variable_turns_downloads_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_CLUSTERS_OFFLINE", "1")
    assert Resolver().offline
    monkeypatch.setenv("GPU_CLUSTERS_OFFLINE", "0")
    assert not Resolver().offline


def test_a_program_that_says_another_version_than_it_should_is_never_cached(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    with pytest.raises(ToolError, match=r"says it is version 0\.0\.0, not 1\.36\.3"):
        resolver(tmp_path, build=Builds(version="0.0.0")).ensure(["kube-apiserver"], said.append)
    assert ToolCache(tmp_path / "tools").find(TOOLS["kube-apiserver"], PLATFORM) is None


def test_a_broken_cache_entry_is_replaced(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    cache = ToolCache(tmp_path / "tools")
    entry = cache.entry(TOOLS["etcd"], PLATFORM)
    entry.mkdir(parents=True)  # a folder where the program should be
    found = resolver(tmp_path).ensure(["etcd"], said.append)
    assert found["etcd"] == entry
    assert entry.is_file()


def test_builds_are_counted_where_there_are_several(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    made = resolver(tmp_path, offline=True)
    made.ensure(["kube-apiserver", "etcd", "kube-scheduler"], said.append)
    made.ensure(["helm"], said.append)
    assert said == ["step 1 of 2: building 1", "step 2 of 2: building 2", "building 1"]


def test_an_interrupted_build_leaves_nothing_behind(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    class Interrupted(Builds):
        def __call__(
            self, tools: Sequence[Tool], target: Path, report: Report
        ) -> Mapping[str, Path]:
            super().__call__(tools, target, report)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolver(tmp_path, build=Interrupted()).ensure(["etcd"], said.append)
    assert [p.name for p in (tmp_path / "tools").iterdir()] == [".lock"]


def test_what_a_killed_process_left_is_cleaned_up_by_the_next(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    (tmp_path / "tools" / ".tmp-0011").mkdir(parents=True)
    resolver(tmp_path).ensure(["etcd"], said.append)
    assert not (tmp_path / "tools" / ".tmp-0011").exists()


def test_two_at_the_same_time_build_once_and_the_second_says_what_it_waits_for(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    building, go_on = threading.Event(), threading.Event()

    class Slow(Builds):
        def __call__(
            self, tools: Sequence[Tool], target: Path, report: Report
        ) -> Mapping[str, Path]:
            building.set()
            assert go_on.wait(60)
            return super().__call__(tools, target, report)

    def second_report(line: str) -> None:
        said.append(line)
        go_on.set()

    build = Slow()
    results: list[dict[str, Path]] = []
    first = threading.Thread(
        target=lambda: results.append(
            resolver(tmp_path, build=build).ensure(["etcd"], lambda _: None)
        )
    )
    first.start()
    assert building.wait(60)
    results.append(resolver(tmp_path, build=build).ensure(["etcd"], second_report))
    first.join()
    assert results[0] == results[1]
    assert build.asked == [["etcd"]]
    assert said[0].startswith("waiting for process ")


def test_an_unknown_tool_is_refused_with_the_known_ones(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    with pytest.raises(ToolError, match=r"no tool 'kubeadm'; it knows etcd, kube-apiserver"):
        resolver(tmp_path).ensure(["kubeadm"], said.append)


def test_a_cache_that_cannot_be_written_says_so(
    tmp_path: Path, path_folder: Path, said: list[str]
) -> None:
    (tmp_path / "tools").write_text("a file where the folder should be")
    with pytest.raises(ToolError, match=r"cannot write to the tool cache .*XDG_CACHE_HOME"):
        resolver(tmp_path).ensure(["etcd"], said.append)


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("Kubernetes v1.36.3", "1.36.3"),
        ("etcd Version: 3.6.14\nGit SHA: v3.6.14\nGo Version: go1.26.8", "3.6.14"),
        ("Client Version: v1.32.4-dispatcher", "1.32.4"),
        ("v4.3.1", "4.3.1"),
        ("v4.3.1+gabcdef0", "4.3.1"),
        ("command not found", None),
    ],
)
def test_versions_are_read_as_each_program_writes_them(output: str, version: str | None) -> None:
    assert parse_version(output) == version


def test_an_accepted_version_does_not_mix_up_digits() -> None:
    assert not TOOLS["etcd"].accepts("3.60.1")
    assert not TOOLS["etcd"].accepts("3")
    assert TOOLS["etcd"].accepts("3.6.1")
