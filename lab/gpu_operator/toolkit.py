"""NVIDIA's container toolkit on a host, as the operator's toolkit container leaves it: real programs.

After NVIDIA/nvidia-container-toolkit v1.20.0, `cmd/nvidia-ctk-installer`: programs in
`/usr/local/nvidia/toolkit` with a wrapper before the runtime and a configuration of their own, then a drop-in
for containerd. RKE2 reads neither that drop-in nor the file that imports it; what counts there is that
containerd is told to read anew, which starts RKE2 anew, and RKE2 then finds the runtime by itself.

The wrapper of the real one goes past the runtime while no kernel module `nvidia` is loaded. There is none
here, so that this one does not ask.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lab.hosts.machine import resolve
from lab.tools.go_program import GoProgram
from lab.tools.model import Report, ToolError

VERSION: Final = "1.20.1"
"""The newest of the release that GPU Operator v26.7 brings."""
SOURCES: Final = Path(__file__).parent / "toolkit_sources"
"""One folder with go.mod and go.sum for each version that is pinned."""
NAMES: Final = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")
_MODULE = "github.com/NVIDIA/nvidia-container-toolkit"


def program(name: str, version: str = VERSION) -> GoProgram:
    return GoProgram(
        name=f"{name}-{version}",
        source=SOURCES / version,
        package=f"{_MODULE}/cmd/{name}",
        linked=f"{_MODULE}/internal/info.version={version}",
        cgo=True,
    )


def ensure(report: Report) -> Mapping[str, Path]:
    """All of them by name, out of the cache or built.

    Raises:
        ToolError: they cannot be had here; one sentence that says why.
    """
    return {name: program(name).built(report) for name in NAMES}


def there() -> Mapping[str, Path]:
    """All of them by name, out of the cache alone.

    Raises:
        ToolError: they were not built.
    """
    found = {name: program(name).place for name in NAMES}
    missing = [name for name, place in found.items() if not place.exists()]
    if missing:
        raise ToolError(f"{', '.join(missing)} could not be built")
    return found


FOLDER: Final = "/usr/local/nvidia/toolkit"
RUNTIME: Final = f"{FOLDER}/nvidia-container-runtime"
DROP_IN: Final = "/etc/containerd/conf.d/99-nvidia.toml"
MAIN: Final = "/etc/containerd/config.toml"
_CONFIGURATION: Final = f"{FOLDER}/.config/nvidia-container-runtime/config.toml"
_WRAPPER: Final = f"""\
#! /bin/sh
NVIDIA_CTK_CONFIG_FILE_PATH={_CONFIGURATION} \\
PATH={FOLDER}:$PATH \\
    {RUNTIME}.real "$@"
"""
_SETTINGS: Final = f"""\
accept-nvidia-visible-devices-as-volume-mounts = false
accept-nvidia-visible-devices-envvar-when-unprivileged = true

[nvidia-container-cli]
root = "/"
path = "{FOLDER}/nvidia-container-cli"

[nvidia-container-runtime]
log-level = "info"
mode = "cdi"
runtimes = ["runc"]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
default-kind = "management.nvidia.com/gpu"
spec-dirs = ["/etc/cdi", "/var/run/cdi"]

[nvidia-container-runtime-hook]
path = "{FOLDER}/nvidia-container-runtime-hook"

[nvidia-ctk]
path = "{FOLDER}/nvidia-ctk"
"""


def configure(*, default: bool) -> tuple[str, ...]:
    """What writes containerd's configuration, run as root of the host; `default`: of all containers."""
    return (
        *(f"{FOLDER}/nvidia-ctk", "runtime", "configure", "--runtime=containerd"),
        *("--config-source=file", f"--config={MAIN}", f"--drop-in-config={DROP_IN}"),
        *(
            f"--nvidia-runtime-path={RUNTIME}",
            "--cdi.enabled",
            f"--set-as-default={default}".lower(),
        ),
    )


def is_default(policy: Mapping[str, Any]) -> bool:
    """Whether the runtime becomes containerd's default: the toolkit's own variables, the first one counts.

    The operator sets the first where CDI is on (`transformToolkitCtrForCDI`); a policy's come after it.
    """
    cdi = (policy.get("cdi") or {}).get("enabled", True)
    known = {"NVIDIA_RUNTIME_SET_AS_DEFAULT": "false"} if cdi else {}
    env = (policy.get("toolkit") or {}).get("env") or ()
    known |= {one["name"]: one.get("value", "") for one in env}
    names = ("NVIDIA_RUNTIME_SET_AS_DEFAULT", "CONTAINERD_SET_AS_DEFAULT")
    return next((known[name] for name in names if name in known), "true") == "true"


def is_there(root: Path) -> bool:
    return resolve(root, RUNTIME).exists()


def lay(root: Path, programs: Mapping[str, Path]) -> None:
    """Install the programs on a host, in place of what was there.

    Args:
        root: the host's file system.
        programs: `toolkit_programs.ensure`.
    """
    folder = resolve(root, FOLDER)
    shutil.rmtree(folder, ignore_errors=True)
    resolve(root, _CONFIGURATION).parent.mkdir(parents=True)
    resolve(root, _CONFIGURATION).write_text(_SETTINGS)
    for name, program in programs.items():
        wrapped = name == Path(RUNTIME).name
        shutil.copy2(program, folder / (f"{name}.real" if wrapped else name))
    wrapper = resolve(root, RUNTIME)
    wrapper.write_text(_WRAPPER)
    wrapper.chmod(0o755)
