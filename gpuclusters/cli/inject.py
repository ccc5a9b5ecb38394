"""`gpu-clusters inject`: what NVIDIA's container runtime adds to a container, mode beside mode."""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from gpuclusters.cdi import injection
from gpuclusters.cdi.injection import Injected, Mode
from gpuclusters.cli import reach
from gpuclusters.cli.errors import RunError, UsageError, wrong_option
from gpuclusters.cli.help import AsJson, StackName
from gpuclusters.cli.project import Project, read_valid
from gpuclusters.config.caas import CaasConfig

LOCAL = "local"
_SCRIPT, _TRIED = "cdi/inject", "try NVIDIA's container runtime"


def command(
    mode: Annotated[
        list[Mode] | None, typer.Option(help="May be repeated; default: all three.")
    ] = None,
    host: Annotated[str, typer.Option(help="A machine of the stack, or `local`.")] = LOCAL,
    gpus: Annotated[str, typer.Option(help="NVIDIA_VISIBLE_DEVICES of the container.")] = "all",
    capabilities: Annotated[
        str, typer.Option(help="NVIDIA_DRIVER_CAPABILITIES of the container.")
    ] = "compute,utility",
    stack: StackName = "dev",
    as_json: AsJson = False,
) -> None:
    """Show what NVIDIA's container runtime would add to a container, by mode; starts none.

    The machine's own runtime and its settings are used, over a runc that does nothing.
    """
    modes = [one.value for one in mode or Mode]
    asked = injection.container(gpus, capabilities)
    arguments = [json.dumps(asked), *modes]
    found = on_this_computer(arguments) if host == LOCAL else on_host(stack, host, arguments)
    where = "this computer" if host == LOCAL else host
    if not found.runtime:
        text = f"{where} has no nvidia-container-runtime; install NVIDIA's container toolkit"
        raise RunError(text, "cdi.no-toolkit")
    if not found.gpu:
        text = f"nvidia-smi shows no GPU on {where}, and without a driver there is nothing to add"
        raise RunError(text, "cdi.no-gpu")
    added = found.added(asked)
    if as_json:
        document = {"runtime": found.runtime, "gpus": found.gpu, "added": added, "said": found.said}
        Console(highlight=False).print_json(json.dumps(document))
    else:
        for line in lines(found, added):
            Console(highlight=False, markup=False).print(line, soft_wrap=True)
    raise typer.Exit(0 if set(added) == set(modes) else 1)


def on_this_computer(arguments: list[str]) -> Injected:
    # The other commands do not wait for SSH.
    from gpuclusters.host.script import script_text

    shell = shutil.which("sh") or "/bin/sh"
    done = subprocess.run(
        [shell, "-s", "--", *arguments],
        input=script_text(_SCRIPT),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RunError(f"NVIDIA's container runtime could not be tried: {done.stderr.strip()}")
    return Injected.parse(done.stdout)


def on_host(stack: str, name: str, arguments: list[str]) -> Injected:
    from gpuclusters.host.script import look
    from gpuclusters.host.ssh import SshHost

    project = Project.find()
    config = read_valid(project, stack).section
    if isinstance(config, CaasConfig):
        text = f"{name} has no driver of NVIDIA: the stack {stack} is a caas cluster, whose GPUs go to VMs"
        raise UsageError(text, "cdi.no-gpu")
    connections, credentials = reach.reach(project, stack, config, [name])
    if name not in connections:
        raise wrong_option(f"--host must be a machine of {stack}, or {LOCAL} (got {name!r})")
    host = SshHost(connections[name], credentials, connect_attempts=1)
    return look(host, Injected, _SCRIPT, arguments, tried=_TRIED)


def lines(found: Injected, added: injection.Added) -> Iterator[str]:
    """A line for each thing that any mode adds."""
    gpus = ", ".join(f"{count} × {name}" for name, count in Counter(found.gpu).items())
    yield f"nvidia-container-runtime {found.runtime}, {gpus}"
    yield "".join(f"{mode:8}" for mode in found.status)
    parts = dict.fromkeys(one for parts in added.values() for one in parts)
    for kind, what in sorted(parts, key=lambda one: injection.KINDS.index(one[0])):
        marks = "".join(
            f"{'+' if (kind, what) in added.get(mode, ()) else '-':8}" for mode in found.status
        )
        yield f"{marks}{kind:13}{what}"
    for mode, status in found.status.items():
        if status:
            yield f"{mode} failed: {found.said.get(mode, '')}"
