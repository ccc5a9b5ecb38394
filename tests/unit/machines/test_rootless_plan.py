"""What a host with rootless Docker lacks and what speaks against it; its files, read by real programs."""

import json
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.core import codes
from gpuclusters.core.finding import Finding, Level
from gpuclusters.host.model import sha256_of
from gpuclusters.rootless import decide, files
from gpuclusters.rootless.decide import next_range
from gpuclusters.rootless.model import Engine, LiveRootless, RootlessHostInputs, parse_engine
from tests.fixtures.made_up import CONNECTION
from tests.fixtures.tables import beside

INPUTS = RootlessHostInputs.model_validate(
    {
        "connection": {**CONNECTION, "user": "ubuntu"},
        "account": "ubuntu",
        "gpus": 2,
        "docker": "29.7.2",
        "container_toolkit": "1.20.0",
        "ports": [6443],
    }
)
CASES = beside(__file__, "rootless_plan.yaml")


def good(**changes: Any) -> LiveRootless:
    """A host that lacks nothing, but for the changes."""
    wanted = {**files.host_files("ubuntu"), **files.account_files("/home/ubuntu", None)}
    live = LiveRootless.model_validate(CASES["good"])
    packages = {
        name: version.replace("*", "1~ubuntu") or "1"
        for name, version in files.wanted_packages(INPUTS).items()
    }
    ours = {
        "package": {**live.package, **packages},
        "file": {p: sha256_of(t.encode()) for p, t in wanted.items()},
        "applied": files.host_digest("ubuntu"),
        "enabled": dict.fromkeys((*files.REFRESH_UNITS, files.BOOT_UNIT), "enabled"),
        "daemon_json": files.daemon_configuration(None),
    }
    live = live.model_copy(update=ours)
    return live.model_copy(update={"held": frozenset(files.to_hold(live)), **changes})


def but_for(changes: dict[str, Any]) -> LiveRootless:
    """`good`, but for changes as a script prints them."""
    read = LiveRootless.model_validate(changes)
    return good(**{name: getattr(read, name) for name in changes})


def found_in(live: LiveRootless, inputs: RootlessHostInputs = INPUTS) -> list[Finding]:
    """All findings; each has a code that is listed, and can be told as drift."""
    found = [*decide.findings(inputs, live)]
    assert all(codes.listed()[one.code].severity for one in found)
    return found


def test_a_host_that_lacks_nothing_is_left_alone() -> None:
    assert found_in(good()) == []


@pytest.mark.parametrize(("changes", "step", "code", "words"), CASES["lacks"])
def test_what_a_host_lacks_is_said_and_has_a_step(
    changes: dict[str, Any], step: str, code: str, words: str
) -> None:
    found = [one for one in found_in(but_for(changes)) if one.code == f"rootless.{code}"]
    assert (step, Level.REPAIR) in {(one.step, one.level) for one in found}
    assert words in "; ".join(one.problem for one in found)


@pytest.mark.parametrize(("changes", "remedy"), CASES["remedies"])
def test_what_a_step_does_not_repair_has_a_remedy_of_its_own(
    changes: dict[str, Any], remedy: str
) -> None:
    assert any(remedy in one.remedy for one in decide.findings(INPUTS, but_for(changes)))


def test_a_file_of_the_account_is_judged_by_its_digest_alone() -> None:
    assert found_in(good(daemon_json="{}")) == []


@pytest.mark.parametrize(("engine", "code", "words"), CASES["daemon"])
def test_a_daemon_that_is_not_as_it_must_be_is_restarted(
    engine: dict[str, Any], code: str, words: str
) -> None:
    now = {**good().docker_info.model_dump(), **engine}
    (found,) = found_in(but_for({"docker_info": now}))
    assert (found.step, found.code) == ("restart", f"rootless.{code}")
    assert words in found.problem


@pytest.mark.parametrize(("changes", "code", "words"), CASES["forbids"])
def test_what_forbids_to_prepare_a_host_has_a_remedy(
    changes: dict[str, Any], code: str, words: str
) -> None:
    (found,) = [one for one in found_in(but_for(changes)) if one.level is Level.BLOCK]
    assert found.code == code
    assert words in f"{found.problem}; {found.remedy}"
    assert found.remedy


def test_a_manager_with_containers_is_not_restarted() -> None:
    engine = good().docker_info.model_copy(update={"containers": 2})
    found = found_in(good(controllers=frozenset(), docker_info=engine))
    assert [one.code for one in found if one.level is Level.BLOCK] == [
        "rootless.containers-running"
    ]


def test_an_administrator_gets_one_command_for_each_thing() -> None:
    inputs = INPUTS.model_copy(update={"sudo": False})
    bare = LiveRootless.model_validate(CASES["bare"]).model_copy(
        update={"module_missing": frozenset(files.MODULES), "gpu": good().gpu}
    )
    found = found_in(bare, inputs)
    assert {one.level for one in found} == {Level.BLOCK}
    assert all("administrator to run: `" in one.remedy for one in found)
    assert not any("run: ``" in one.remedy for one in found)
    said = "; ".join(one.remedy for one in found)
    assert not [words for words in CASES["administrator"] if words not in said]


def test_new_ranges_come_after_those_of_everybody() -> None:
    assert next_range(LiveRootless()) == 100_000
    assert next_range(LiveRootless(taken=((100_000, 65_536), (231_072, 10)))) == 231_082


@pytest.mark.parametrize(("there", "wanted"), CASES["configurations"])
def test_the_daemons_configuration_keeps_what_is_not_ours(there: str | None, wanted: Any) -> None:
    body = json.loads(files.daemon_configuration(there))
    assert {k: body[k] for k in wanted} == wanted
    assert body.get("default-runtime") != "nvidia"
    assert body["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    text = json.dumps(body)
    assert files.daemon_configuration(text) == text  # what fits is not written anew


@pytest.mark.parametrize("there", ["[]", "{", '"x"'])
def test_a_configuration_that_cannot_be_read_is_not_written_over(there: str) -> None:
    with pytest.raises(ValueError, match=r"daemon\.json"):
        files.daemon_configuration(there)


def test_a_daemon_is_what_docker_info_says() -> None:
    said, read = CASES["info"]["said"], CASES["info"]["read"]
    live = LiveRootless.parse(f"docker-info {json.dumps(said)}\ndaemon-json e30=\n")
    assert live.daemon_json == "{}"
    assert live.docker_info == Engine.model_validate(read)
    assert parse_engine('{"ServerErrors": ["no"]}') == Engine()


def test_what_an_administrator_types_writes_the_file(tmp_path: Path) -> None:
    for path, text in files.host_files("ubuntu").items():
        command = files.write_command(f"{tmp_path}{path}", text)
        subprocess.run(["sh", "-c", command], check=True)
        written = (tmp_path / path[1:]).read_text().splitlines()
        assert written == [line for line in text.splitlines() if line and line[0] not in "#/"]


def test_a_machine_is_looked_at_whatever_is_installed_on_it() -> None:
    if not Path("/etc/os-release").exists():
        pytest.skip("this is no Linux")
    script = Path(files.__file__).with_name("scripts") / "inspect.sh"
    name = pwd.getpwuid(os.getuid()).pw_name
    done = subprocess.run(
        ["sh", str(script), name, "tun no_such_module", "/etc/os-release", "/no/such/file"],
        capture_output=True,
        text=True,
        check=True,
    )
    live = LiveRootless.parse(done.stdout)
    assert (live.uid, live.architecture) == (os.getuid(), os.uname().machine)
    assert "no_such_module" in live.module_missing
    assert live.file == {"/etc/os-release": sha256_of(Path("/etc/os-release").read_bytes())}
    # The files themselves say which ranges are taken: all of them, whoever has them.
    lines = [
        line.split(":")
        for path in (Path("/etc/subuid"), Path("/etc/subgid"))
        for line in (path.read_text().splitlines() if path.exists() else ())
    ]
    assert sorted(live.taken) == sorted((int(f[1]), int(f[2])) for f in lines if len(f) == 3)
