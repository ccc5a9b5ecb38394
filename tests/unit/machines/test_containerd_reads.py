"""What we write for containerd is read by containerd 2 itself: `containerd config dump` of a configuration
that imports our drop-in. Built from source once per machine; where that cannot be, skipped with the reason.

containerd only warns of a key that it does not know, and goes on without it: a setting that is misspelt, or
stands in the wrong table, would be missed by nobody until images of 20 GB are pulled.
"""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.host.drop_ins import CDI_DIRECTORIES, ContainerdSchema, containerd
from gpuclusters.kata.model import Shim
from lab.kubelet.kata_installer import installed_files
from tests.fixtures import go_programs

pytestmark = pytest.mark.timeout(go_programs.BUILD_SECONDS + 60)

SOURCES = Path(__file__).resolve().parents[2]
PINNED = SOURCES / "containerd"
MODULE = "github.com/containerd/containerd/v2"
RUNTIME = "io.containerd.cri.v1.runtime"
IMAGES = "io.containerd.cri.v1.images"


def pinned(folder: Path, module: str) -> str:
    """The version of a module in a go.mod."""
    found = re.search(rf"^\s*{re.escape(module)} (\S+)", (folder / "go.mod").read_text(), re.M)
    assert found, module
    return found[1]


@pytest.fixture(scope="module")
def program() -> Path:
    """A real containerd. Left out are three snapshotters that need libraries in C."""
    return go_programs.built(
        "containerd",
        PINNED,
        f"{MODULE}/cmd/containerd",
        tags="no_btrfs,no_devmapper,no_zfs",
        linked=f"{MODULE}/version.Version={pinned(PINNED, MODULE)}",
    )


def read(program: Path, folder: Path, version: str, **drop_ins: str) -> tuple[Any, list[str]]:
    """What containerd makes of its configuration and these drop-ins, and what it complains about."""
    imported = folder / "conf.d"
    imported.mkdir()
    for name, text in drop_ins.items():
        (imported / f"{name}.toml").write_text(text)
    main = folder / "config.toml"
    main.write_text(f'version = {version}\nimports = ["{imported}/*.toml"]\n')
    done = subprocess.run(
        [program, "--config", main, "config", "dump"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [
        line
        for line in done.stderr.splitlines()
        # Every configuration that is not of the newest version is told so.
        if "level=" in line and "Configuration migrated" not in line
    ]
    return tomllib.loads(done.stdout), said


def ours(schema: ContainerdSchema, *, enable_cdi: bool = False) -> str:
    return containerd(
        schema=schema, enable_cdi=enable_cdi, image_pull_progress_timeout_seconds=1800
    )


def test_it_is_the_containerd_that_is_pinned(program: Path) -> None:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1:3] == [MODULE, pinned(PINNED, MODULE)]
    assert pinned(PINNED, MODULE).startswith("v2.")


@pytest.mark.parametrize("schema", list(ContainerdSchema))
def test_containerd_takes_our_drop_in(
    program: Path, tmp_path: Path, schema: ContainerdSchema
) -> None:
    document, complaints = read(program, tmp_path, schema.value, ours=ours(schema))
    plugins = document["plugins"]
    assert plugins[RUNTIME]["cdi_spec_dirs"] == list(CDI_DIRECTORIES)
    assert plugins[IMAGES]["image_pull_progress_timeout"] == "1800s"
    assert complaints == []


def test_the_switch_for_cdi_is_one_that_this_containerd_no_longer_knows(
    program: Path, tmp_path: Path
) -> None:
    """Why `enable-cdi` is off unless asked for; and that an unknown key would be seen here."""
    text = ours(ContainerdSchema.V3, enable_cdi=True)
    document, complaints = read(program, tmp_path, "3", ours=text)
    (complaint,) = complaints
    assert "unknown key" in complaint
    assert "key=enable_cdi" in complaint
    assert document["plugins"][RUNTIME]["cdi_spec_dirs"] == list(CDI_DIRECTORIES)


@pytest.mark.parametrize("shim", [Shim.GO, Shim.RUST])
def test_katas_handler_and_our_settings_stand_beside_each_other(
    program: Path, tmp_path: Path, shim: Shim
) -> None:
    """Two drop-ins of one table, by two writers: neither takes away what the other set."""
    installed = {"shims": [shim.value], "suffix": "", "distribution": "k8s"}
    (handler,) = (
        content.decode()
        for path, content in installed_files(installed, {})
        if path.startswith("/etc/containerd/conf.d/") and content is not None
    )
    document, complaints = read(
        program, tmp_path, "3", ours=ours(ContainerdSchema.V3), kata=handler
    )
    runtime = document["plugins"][RUNTIME]
    found = runtime["containerd"]["runtimes"][shim.runtime_class]
    assert found["runtime_type"] == f"io.containerd.{shim.runtime_class}.v2"
    assert found["pod_annotations"] == ["io.katacontainers.*"]
    assert found["privileged_without_host_devices"] is True
    assert found["options"]["ConfigPath"].endswith(f"configuration-{shim.value}.toml")
    assert "runc" in runtime["containerd"]["runtimes"]
    assert runtime["cdi_spec_dirs"] == list(CDI_DIRECTORIES)
    assert complaints == []


def test_cdi_specs_are_read_elsewhere_with_the_library_that_is_in_this_containerd() -> None:
    """test_cdi.py reads our specs with it, and gives a container its device nodes."""
    library = "tags.cncf.io/container-device-interface"
    assert pinned(SOURCES / "cdi_reader", library) == pinned(PINNED, library)
