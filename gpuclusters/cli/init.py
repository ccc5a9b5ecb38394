"""`gpu-clusters init`: the smallest right stack file for machines that one has, its stack and its secrets."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer
import yaml
from pydantic import TypeAdapter

from gpuclusters.cli import engine as engines
from gpuclusters.cli import unfinished
from gpuclusters.cli.errors import RunError, UsageError, wrong_option
from gpuclusters.cli.files import read_yaml
from gpuclusters.cli.project import Project, Stack, read_valid
from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.dated_table import Row
from gpuclusters.config.cluster import SECRET_KEYS, needed
from gpuclusters.config.fault import told
from gpuclusters.config.stack import NAMESPACE, ClusterType, StackConfig, parse
from gpuclusters.core.scripts import filled

Answers = dict[str, str]


class Question(Row):
    """What a stack file cannot do without and nobody but its owner knows."""

    text: str
    default: str | None = None
    """What an empty answer means, `""` that it may be left out; None: there has to be one, or a guess."""
    form: Literal["text", "number", "numbers", "words", "pairs"] = "text"


class Kind(Row):
    """What one cluster type is asked, by key, and its section with a word for each answer."""

    questions: Mapping[str, Question]
    section: Mapping[str, Any]

    def words(self, answers: Answers) -> dict[str, Any]:
        """The answers by key, each in its form."""
        forms: Mapping[str, Callable[[str, str], Any]] = {
            "text": lambda _, text: text,
            "number": lambda _, text: int(text),
            "numbers": lambda _, text: [int(word) for word in text.split()],
            "words": lambda _, text: text.split(),
            "pairs": pairs,
        }
        return {key: forms[one.form](key, answers[key]) for key, one in self.questions.items()}


@cache
def kinds() -> Mapping[ClusterType, Kind]:
    known = yaml.safe_load(Path(__file__).with_name("init.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(dict[ClusterType, Kind]).validate_python(known)


def _ranges(key: str, answers: Answers) -> str:
    """The /24 of each address in an answer: a guess that the owner sees before it is taken."""
    places = pairs(key, answers[key]).values()
    hosts = [urlsplit(one if "//" in one else f"//{one}").hostname or one for one in places]
    try:
        found = {ip_network(f"{ip_address(host)}/24", strict=False) for host in hosts}
    except ValueError as error:
        raise wrong_option(f"{key}: {error}") from error
    return " ".join(sorted(map(str, found)))


def _operator(_answers: Answers) -> str:
    releases = rke2_matrix.operators().releases
    return max(releases, key=lambda name: releases[name].date)


_GUESSES: Mapping[str, Callable[[Answers], str]] = {
    "node-cidrs": partial(_ranges, "machines"),
    "bmc-cidrs": partial(_ranges, "bmc"),
    "servers": lambda answers: answers["machines"].split()[0].partition("=")[0],
    "version": lambda _: rke2_matrix.matrix().rke2.channels["stable"],
    "operator": _operator,
}
"""Defaults that follow from the answers before, or from what there is."""


def pairs(key: str, text: str) -> dict[str, str]:
    """What `NAME=VALUE NAME=VALUE` says; `key` is what it answers, for the error."""
    found = dict(one.partition("=")[::2] for one in text.split())
    if wrong := [name for name, value in found.items() if not name or not value]:
        raise wrong_option(f"{key}: {wrong[0]!r} is not of the form NAME=VALUE")
    return found


def _caas(words: Mapping[str, Any]) -> dict[str, Any]:
    bmcs, user = words["bmc"], words["bmc-user"]
    golden = {"versions": {item: [version] for item, version in words["firmware"].items()}}
    return {
        "nodes": [
            {"name": name} | ({"bmc": {"url": bmcs[name], "user": user}} if name in bmcs else {})
            for name in words["machines"]
        ],
        "leases": {"golden-firmware": golden} if bmcs else {"recycle-policy": "reset-only"},
        "shares": [{"name": name, "gpus": int(gpus)} for name, gpus in words["tenants"].items()],
    }


def _usernetes(words: Mapping[str, Any]) -> dict[str, Any]:
    first, *others = [{"host": name, "number": at} for at, name in enumerate(words["machines"], 1)]
    return {"control-plane": first, "workers": others}


_MADE: Mapping[ClusterType, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    ClusterType.CAAS: _caas,
    ClusterType.RKE2: lambda words: {
        "agents": [name for name in words["machines"] if name not in words["servers"]]
    },
    ClusterType.USERNETES: _usernetes,
}
"""Words of a section that are made of several answers."""


def document(kind: ClusterType, stack: str, answers: Answers, keys: Mapping[str, str]) -> str:
    """The stack file of a stack and cluster of this name; `keys` are host keys by machine."""
    machines: list[dict[str, Any]] = []
    for name, place in pairs("machines", answers.get("machines", "")).items():
        address, _, port = place.partition(":")
        machines.append(
            {"name": name, "address": address}
            | ({"port": int(port)} if port else {})
            | {"host-key": keys[name]}
        )
    try:
        words = kinds()[kind].words(answers)
        words |= _MADE[kind](words) if kind in _MADE else {}
    except ValueError as error:
        raise wrong_option(f"an answer is not a number: {error}") from error
    section = filled(kinds()[kind].section, words)
    if machines:
        hosts = {"source": "existing", "user": answers["user"], "machines": machines}
        section = {"hosts": hosts, **section}
    config = {
        f"{NAMESPACE}:cluster-type": kind.value,
        f"{NAMESPACE}:{kind.value}": {"name": stack, **section},
    }
    text = yaml.safe_dump({"config": config}, sort_keys=False, width=1000)
    return f"# yaml-language-server: $schema=gpuclusters/config/schema.json\n{text}"


if TYPE_CHECKING:
    import asyncssh


async def scan(machines: Mapping[str, str]) -> dict[str, asyncssh.SSHKey]:
    """The ed25519 host key of each machine (ADDRESS or ADDRESS:PORT), which nobody has compared yet."""
    # The other commands do not wait for it.
    import asyncssh

    from gpuclusters.host.connect import CONNECT_TIMEOUT_SECONDS

    async def key(place: str) -> asyncssh.SSHKey | str:
        address, _, port = place.partition(":")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                found = await asyncssh.get_server_host_key(
                    address, int(port or 22), server_host_key_algs=["ssh-ed25519"], config=None
                )
        except (OSError, asyncssh.Error, TimeoutError, ValueError) as error:
            return str(error) or "no answer"
        return found or "no ed25519 host key"

    found = dict(zip(machines, await asyncio.gather(*map(key, machines.values())), strict=True))
    keys = {name: one for name, one in found.items() if not isinstance(one, str)}
    failed = (f"{name} ({machines[name]}): {found[name]}" for name in found if name not in keys)
    if len(keys) < len(found):
        raise RunError("cannot read host keys:\n  " + "\n  ".join(failed), "command.no-init")
    return keys


def command(
    kind: Annotated[ClusterType, typer.Argument(help="Type of the cluster.")],
    stack: Annotated[str, typer.Option("--stack", "-s", help="Name of the stack.")] = "prod",
    answers: Annotated[
        Path | None, typer.Option(help="YAML file with answers by key; the others are asked.")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option("--secret", help="KEY=FILE, a secret to set; those left out are asked."),
    ] = None,
    accept_host_keys: Annotated[
        bool,
        typer.Option("--accept-host-keys", help="Take the host keys that are shown unasked."),
    ] = False,
) -> None:
    """Write the smallest stack file for machines that you have, or for GKE; make its stack; set its secrets.

    Asks what it cannot know, reads the machines' host keys and shows their fingerprints to compare. Writes
    nothing until the answers make a valid configuration.
    """
    project = Project.find()
    file = project.folder / f"Pulumi.{stack}.yaml"
    if file.exists():
        raise wrong_option(f"{file.name} exists already; name another stack with --stack")
    files = {key: Path(name) for key, name in pairs("--secret", " ".join(secret or ())).items()}
    if wrong := [key for key in files if key not in SECRET_KEYS]:
        raise wrong_option(f"--secret: {wrong[0]} is none of {', '.join(SECRET_KEYS)}")
    if absent := [str(path) for path in files.values() if not path.is_file()]:
        raise UsageError(f"--secret: {', '.join(absent)} cannot be read", "command.unreadable-file")
    given = ask(kind, _read(answers, kind))
    lines = {} if kind is ClusterType.GKE else _host_keys(given, accepted=accept_host_keys)
    text = document(kind, stack, given, lines)
    _check(file.name, text)
    file.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {file.name}")
    _make_stack(project, stack, files)


def _host_keys(given: Answers, *, accepted: bool) -> dict[str, str]:
    """The host key of each machine, once its fingerprint was compared."""
    machines = pairs("machines", given["machines"])
    keys = asyncio.run(scan(machines))
    for name, key in keys.items():
        typer.echo(f"{name}  {machines[name]}  {key.get_fingerprint()}")
    typer.echo("on each machine: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    if not accepted:
        typer.confirm("Are these the fingerprints on the machines' consoles?", abort=True)
    return {name: key.export_public_key().decode().strip() for name, key in keys.items()}


def _read(file: Path | None, kind: ClusterType) -> Answers:
    if file is None:
        return {}
    document = read_yaml(file) or {}
    known = kinds()[kind].questions
    if not isinstance(document, dict) or set(document) - set(known):
        raise wrong_option(f"{file}: write answers by key; known: {', '.join(known)}")
    return {key: str(value) for key, value in document.items()}


def ask(kind: ClusterType, given: Answers) -> Answers:
    """Every answer: those that are given, and the others from the terminal, or the default without one."""
    answers: Answers = dict(given)
    missing = []
    for key, question in kinds()[kind].questions.items():
        if key in answers:
            continue
        default = question.default
        if guess := _GUESSES.get(key):
            default = guess(answers) if "machines" in answers else ""
        if sys.stdin.isatty():
            answers[key] = typer.prompt(question.text, default=default)
        elif default is not None:
            answers[key] = default
        else:
            missing.append(key)
    if missing:
        raise wrong_option(
            f"there is no terminal to ask for {', '.join(missing)}; write them into --answers FILE"
        )
    return answers


def _check(name: str, text: str) -> None:
    config = yaml.safe_load(text)["config"]
    found = parse({key.removeprefix(f"{NAMESPACE}:"): value for key, value in config.items()})
    if not isinstance(found, StackConfig):
        faults = "\n".join(f"  {told(Path(name), fault)}" for fault in found)
        raise wrong_option(f"these answers make no valid stack file; nothing was written\n{faults}")


def _make_stack(project: Project, stack: str, files: Mapping[str, Path]) -> None:
    """Make the stack in a backend, set its secrets, and say what is left to do."""
    exports = _backend(project, stack)
    env = os.environ | exports
    engine = engines.choose()
    typer.echo(engine.line)
    Stack(project, stack, engine, env).make()
    later = [f"export {variable}={value}" for variable, value in exports.items()]
    for key, why in needed(read_valid(project, stack).section).items():
        text = f"File with the secret {key}, {why} (empty: set it later)"
        path = files.get(key) or _asked(text, "")
        setting = ("config", "set", "--secret", key, "--stack", stack)
        if not path:
            later.append(f"pulumi {' '.join(setting)} < FILE")
            continue
        with Path(path).open(encoding="utf-8") as content:
            if engine.call(*setting, folder=project.folder, env=env, stdin=content):
                raise RunError(f"the secret {key} cannot be set; see above", "command.no-init")
    later += [f"gpu-clusters {verb} --stack {stack}" for verb in ("doctor", "preview", "up")]
    typer.echo("\n  ".join(("next:", *later)))


def _backend(project: Project, stack: str) -> dict[str, str]:
    """Environment variables that find state and passphrase, as far as nobody has set them."""
    exports = {}
    if not unfinished.backend_url(project.folder, os.environ):
        default = f"file://{Path.home() / '.local' / 'state' / 'gpu-clusters'}"
        where = "Where the state is kept: file://, s3://, gs://, azblob:// or https://"
        url = _asked(where, default)
        exports[unfinished.BACKEND_VARIABLE] = url
        if (folder := unfinished.folder_of(url)) is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not {"PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"} & set(os.environ):
        sealed = Path.home() / ".config" / "gpu-clusters" / f"{stack}.passphrase"
        sealed.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not sealed.exists():
            sealed.touch(mode=0o600)
            sealed.write_text(secrets.token_urlsafe(32), encoding="utf-8")
        exports["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(sealed)
    return exports


def _asked(text: str, default: str) -> str:
    return str(typer.prompt(text, default=default)) if sys.stdin.isatty() else default
