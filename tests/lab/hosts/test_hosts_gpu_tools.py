"""`nvidia_gpu_tools.py` on a simulated host: documented output and exit codes, and GPUs that remember."""

from __future__ import annotations

import re
import subprocess

import pytest

from lab.hosts import faults
from lab.hosts.__main__ import main
from lab.hosts.hardware import tenant
from lab.hosts.hardware.gpus import DEFAULT_KNOBS, Gpu
from lab.hosts.model import HostsError
from tests.fixtures.hosts import Hosts, SimulatedHost

TOOL = "sudo -n nvidia_gpu_tools.py"
GPU_3 = "0000:87:00.0"
"""Where module 3 of the simulated board is on the bus."""
STAMP = r"\d{4}-\d\d-\d\d,\d\d:\d\d:\d\d\.\d{3}"


@pytest.fixture
def host(hosts: Hosts) -> SimulatedHost:
    return hosts()[0]


def tool(
    host: SimulatedHost, options: str, device: str = GPU_3
) -> subprocess.CompletedProcess[str]:
    return host.run(f"{TOOL} --devices {device} {options}")


def log(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    """Level and text of each line of the tool's log."""
    found = (re.fullmatch(rf"{STAMP} (\w+) +(.*)", line) for line in done.stderr.splitlines())
    return [(match[1], match[2]) for match in found if match]


def about(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the log says about devices, without their names."""
    texts = [text for _, text in log(done) if not text.startswith("Selected")]
    return [re.sub(r"^(GPU|NvSwitch) \S+ \S+ \S+ BAR0 \S+ ", "", text) for text in texts]


def gpu(host: SimulatedHost, module: int = 3) -> Gpu:
    return tenant.state(host.folder, host.name, module)


def used(host: SimulatedHost, *modules: int, name: str = "acme", **changes: str) -> list[str]:
    knobs = {key: value for key, value in changes.items() if key != "firmware"}
    return tenant.use(
        host.folder, host.name, modules or [3], name, knobs=knobs, firmware=changes.get("firmware")
    )


def test_answers_go_to_the_log_on_standard_error_and_name_the_device(host: SimulatedHost) -> None:
    done = tool(host, "--query-ecc-state")
    assert done.returncode == 0
    assert done.stdout.startswith("NVIDIA GPU Tools version v")
    assert "Command line arguments: ['nvidia_gpu_tools.py', '--devices'" in done.stdout
    (selected, answer) = log(done)
    device = r"GPU 0000:87:00\.0 H100 0x2330 BAR0 0x[0-9a-f]+"
    assert re.fullmatch(rf"Selected {device}", selected[1])
    assert answer[0] == "INFO"
    assert re.fullmatch(rf"{device} ECC is enabled", answer[1])


def test_module_names_say_which_gpu_is_where(host: SimulatedHost) -> None:
    done = tool(host, "--query-module-name", "gpus")
    rows = re.findall(r"INFO +GPU (\S+) .* module name SXM_(\d)", done.stderr)
    expected = {1: "86", 2: "b8", 3: "87", 4: "bb", 5: "0f", 6: "41", 7: "10", 8: "44"}
    assert {int(module): address for address, module in rows} == {
        module: f"0000:{bus}:00.0" for module, bus in expected.items()
    }


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("gpus", 8),
        ("87:00.0", 1),
        ("0000:87:00.0,0000:bb:00.0", 2),
    ],
)
def test_devices_are_selected_as_documented(host: SimulatedHost, selector: str, count: int) -> None:
    done = tool(host, "--query-ecc-state", selector)
    assert done.returncode == 0
    assert sum(text.startswith("Selected") for _, text in log(done)) == count


def test_only_root_may_use_it(host: SimulatedHost) -> None:
    if host.run("sudo -n id -u && id -u").stdout.split() == ["0", "0"]:
        pytest.skip("root and the operator are one user here")
    done = host.run(f"nvidia_gpu_tools.py --devices {GPU_3} --reset-with-sbr")
    assert done.returncode == 1
    assert "PermissionError" in done.stderr


def test_a_tenants_data_stay_until_reset_and_clear(host: SimulatedHost) -> None:
    assert used(host) == []
    assert gpu(host).data_of == "acme"
    tool(host, "--reset-with-sbr")
    assert gpu(host).data_of == "acme"
    assert tool(host, "--clear-memory").returncode == 0
    assert gpu(host).data_of is None


def test_clear_and_reset_go_together_in_one_command(host: SimulatedHost) -> None:
    used(host, 3, 4)
    assert tool(host, "--clear-memory --reset-with-sbr").returncode == 0
    assert gpu(host, 3).data_of is None
    assert gpu(host, 4).data_of == "acme", "only the selected GPU"


def test_clearing_without_a_reset_reports_success_and_clears_nothing(host: SimulatedHost) -> None:
    used(host)
    assert tool(host, "--clear-memory").returncode == 0
    assert gpu(host).data_of == "acme"


def test_knobs_that_a_tenant_turned_are_seen_and_go_back_with_the_next_reset(
    host: SimulatedHost,
) -> None:
    used(host, ecc="disabled", mig="enabled", cc="devtools", ppcie="on")
    queries = "--query-ecc-state --query-mig-mode --query-cc-mode --query-ppcie-mode"
    changed = {
        "ECC is disabled",
        "CC mode is devtools",
        "MIG mode is enabled",
        "PPCIe mode is on",
        "has CC mode devtools, some functionality may not work",
    }
    assert set(about(tool(host, queries))) == changed
    done = tool(host, "--knobs-reset-to-defaults all")
    assert about(done)[-1] == "resetting knobs ['all'] to defaults"
    assert set(about(tool(host, queries))) == changed, "not before the reset"
    tool(host, "--reset-with-sbr")
    assert about(tool(host, queries)) == [
        "ECC is enabled",
        "CC mode is off",
        "MIG mode is disabled",
        "PPCIe mode is off",
    ]


def test_a_knob_goes_back_on_its_own(host: SimulatedHost) -> None:
    used(host, ecc="disabled", mig="enabled")
    tool(host, "--knobs-reset-to-defaults ecc")
    tool(host, "--reset-with-sbr")
    assert gpu(host).knobs == {**DEFAULT_KNOBS, "mig": "enabled"}


def test_a_gpu_whose_bridge_is_hidden_is_an_error_line_with_exit_code_0(
    host: SimulatedHost,
) -> None:
    used(host, 3, 4)
    host.inject(faults.ResetNotSupported(module=3))
    done = tool(host, "--clear-memory --reset-with-sbr")
    assert done.returncode == 0, "as the real tool does"
    assert (
        "ERROR",
        "Cannot reset the GPU with SBR as the upstream bridge is not accessible",
    ) in log(done)
    assert gpu(host, 3).data_of == "acme"
    assert tool(host, "--clear-memory --reset-with-sbr", "0000:bb:00.0").returncode == 0
    assert gpu(host, 4).data_of is None


def test_memory_that_does_not_become_clear_is_a_failure(host: SimulatedHost) -> None:
    used(host)
    host.inject(faults.MemoryNotCleared(module=3))
    done = tool(host, "--reset-with-sbr --clear-memory")
    assert done.returncode == 1
    assert "GpuPollTimeout" in done.stderr
    assert gpu(host).data_of == "acme"
    assert tool(host, "--reset-with-sbr --clear-memory", "0000:bb:00.0").returncode == 0


def test_a_reset_that_hangs_never_ends(host: SimulatedHost) -> None:
    host.inject(faults.ResetHangs(module=3))
    with pytest.raises(TimeoutError):
        host.run(f"{TOOL} --devices {GPU_3} --reset-with-sbr", timeout=0.7)
    assert tool(host, "--query-ecc-state").returncode == 0


def test_a_gpu_that_fell_off_the_bus_fails_at_everything_and_shows_in_lspci(
    host: SimulatedHost,
) -> None:
    host.inject(faults.GpuFellOffTheBus(module=3))
    for options in (
        "--query-module-name",
        "--reset-with-sbr",
        "--clear-memory",
        "--query-ecc-state",
    ):
        done = tool(host, options)
        assert done.returncode == 1, options
        assert "broken" in done.stderr
    listed = host.run("lspci -Dnn -d 10de:2330").stdout
    assert [line.split()[0] for line in listed.splitlines() if "(rev ff)" in line] == [GPU_3]


def test_a_stuck_knob_reads_wrong_whatever_is_done(host: SimulatedHost) -> None:
    host.inject(faults.KnobsChanged(module=3, knob="mig", value="enabled"))
    tool(host, "--knobs-reset-to-defaults all")
    tool(host, "--reset-with-sbr")
    assert about(tool(host, "--query-mig-mode")) == ["MIG mode is enabled"]
    assert about(tool(host, "--query-mig-mode", "0000:bb:00.0")) == ["MIG mode is disabled"]


def test_a_faults_gpu_is_by_default_every_gpu() -> None:
    everywhere = faults.Faults([faults.parse("reset-not-supported", {})])
    assert all(everywhere.of_gpu(faults.ResetNotSupported, module) for module in range(1, 9))
    one = faults.Faults([faults.parse("reset-not-supported", {"module": 2})])
    assert one.of_gpu(faults.ResetNotSupported, 1) is None


def test_what_one_tenant_left_is_harm_when_the_next_finds_it(host: SimulatedHost) -> None:
    used(host, 1, 3, ecc="disabled", firmware="1.2")
    found = used(host, 3, name="globex")
    assert found == [
        "globex found data of acme on GPU 3",
        "globex found changed knobs on GPU 3",
        "globex found changed firmware on GPU 3",
    ]
    assert [entry["what"] for entry in host.journal("harm")] == found
    tenant.repair(host.folder, host.name, [1])
    assert used(host, 1, name="globex") == []


def test_a_tenant_finds_its_own_things_without_harm(host: SimulatedHost) -> None:
    used(host, ecc="disabled")
    assert used(host) == []


def test_after_a_reset_links_are_down_until_the_partition_is_activated(host: SimulatedHost) -> None:
    host.run("fmpm -a 3")
    tool(host, "--reset-with-sbr", "gpus")
    assert used(host, 1, 3) == [f"acme found GPU {n} without NVLinks" for n in (1, 3)]
    host.run("fmpm -d 3; fmpm -a 3")
    assert used(host, 1, 3) == []
    assert used(host, 5) == [], "one GPU alone needs none"


def test_a_reset_under_a_virtual_machine_is_on_record(host: SimulatedHost) -> None:
    host.set_partition_in_use(3, "vm-acme")
    tool(host, "--reset-with-sbr", "0000:bb:00.0")
    assert host.journal("harm") == []
    tool(host, "--reset-with-sbr")
    assert [entry["partition"] for entry in host.journal("harm")] == [3]


def test_the_command_line_plays_a_tenant(
    host: SimulatedHost, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(host.folder)
    assert main(["tenant", folder, host.name, "2,4", "acme", "mig=enabled", "firmware=1.2"]) == 0
    assert gpu(host, 4).model_dump() == {
        **Gpu().model_dump(),
        "data_of": "acme",
        "reset_since_use": False,
        "knobs": {**DEFAULT_KNOBS, "mig": "enabled"},
        "firmware": "1.2",
    }
    assert main(["tenant", folder, host.name, "4", "globex"]) == 0
    assert "globex found data of acme on GPU 4" in capsys.readouterr().out
    assert main(["repair", folder, host.name, "2,4"]) == 0
    assert gpu(host, 2) == gpu(host, 4) == Gpu()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["9", "acme"], "has GPUs 1 to 8, not 9"),
        (["x", "acme"], "names no GPUs"),
        (["1", "acme", "turbo=on"], "has no knob turbo"),
        (["1"], "tenant needs a host"),
    ],
)
def test_the_command_line_says_what_is_wrong(
    host: SimulatedHost, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(["tenant", str(host.folder), host.name, *arguments]) == 1
    assert text in capsys.readouterr().err


def test_there_is_no_gpu_on_a_host_that_is_not_there(host: SimulatedHost) -> None:
    with pytest.raises(HostsError, match="there is no simulated host 'hgx-none'"):
        tenant.use(host.folder, "hgx-none", [1], "acme")


def test_programs_of_any_user_can_lock_a_gpu_on_the_host(host: SimulatedHost) -> None:
    assert host.run("flock --nonblock /run/lock/gpu-3 true").returncode == 0
    lock = "sudo -n flock --nonblock /run/lock/gpu-4"
    done = host.run(f"{lock} nvidia_gpu_tools.py --devices {GPU_3} --query-ecc-state")
    assert (done.returncode, about(done)) == (0, ["ECC is enabled"])
    assert host.run(f"{lock} {lock} true").returncode == 1, "taken"
