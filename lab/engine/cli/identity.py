"""`whoami`, `about`, `version`, `login`, `logout`: who works here, with what, and where."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

from lab.engine.atomicfile import write_bytes
from lab.engine.backend import address
from lab.engine.cli.parser import Parser, Verbs, global_flags, stack_flags
from lab.engine.cli.tables import print_json
from lab.engine.cli.workspace import Workspace
from lab.engine.state import VERSION
from lab.engine.usererror import ExitCode, UserError

_NOTE = "embedded engine; its state and its command line are those of this version of Pulumi"
_NEVER = "0001-01-01T00:00:00Z"


def add_verbs(verbs: Verbs, shared: Parser) -> None:
    """Register the five verbs."""

    def verb(name: str, run: object, text: str) -> Parser:
        parser = verbs.add_parser(name, parents=[shared], allow_abbrev=False, help=text)
        parser.set_defaults(run=run)
        return parser

    # As with Pulumi, -v is not the level of the log here. The flags are its own, as resolving a
    # conflict changes them for everybody who shares them.
    whoami = verbs.add_parser(
        "whoami",
        parents=[global_flags(argparse.SUPPRESS)],
        allow_abbrev=False,
        help="print the user name",
        conflict_handler="resolve",
    )
    whoami.set_defaults(run=_whoami)
    whoami.add_argument("--json", "-j", action="store_true")
    whoami.add_argument("--verbose", "-v", dest="more", action="store_true", help="where as well")
    about = verb("about", _about, "print what is used where")
    about.add_argument("--json", "-j", action="store_true")
    about.add_argument("--transitive", "-t", action="store_true", help="all Python packages")
    stack_flags(about)
    verb("version", _version, "print the version of Pulumi that this engine follows")
    login = verb("login", _login, "choose a folder for the state")
    login.add_argument("url", nargs="?", metavar="file://FOLDER")
    login.add_argument("--cloud-url", "-c", metavar="URL", help="the same")
    login.add_argument("--local", "-l", action="store_true", help="the home folder")
    login.set_defaults(optional=("url",))
    logout = verb("logout", _logout, "forget the chosen folder")
    logout.add_argument("url", nargs="?", metavar="file://FOLDER")
    logout.add_argument("--cloud-url", "-c", metavar="URL", help="the same")
    logout.add_argument("--local", "-l", action="store_true", help="the home folder")
    logout.add_argument("--all", action="store_true", help="all backends")
    logout.set_defaults(optional=("url",))


def _whoami(arguments: argparse.Namespace) -> int:
    url = Workspace(arguments).backend.url
    if arguments.json:
        print_json({"user": _user(), "url": url})
    elif arguments.more:
        print(f"User: {_user()}\nOrganizations: \nBackend URL: {url}")
    else:
        print(_user())
    return 0


def _version(arguments: argparse.Namespace) -> int:
    del arguments
    print(VERSION)
    print(_NOTE, file=sys.stderr)
    return 0


def _about(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    document: dict[str, Any] = {
        "cliAbout": {"version": VERSION, "note": _NOTE},
        "host": {
            "os": platform.system().lower(),
            "version": platform.release(),
            "arch": platform.machine(),
        },
        "runtime": {
            "language": "python",
            "executable": sys.executable,
            "version": platform.python_version(),
        },
        "backend": {"name": socket.gethostname(), "url": None, "user": _user()},
    }
    errors = []
    try:
        document["project"] = {
            "name": workspace.project.name,
            "runtime": workspace.project.runtime,
            "file": str(workspace.project.file),
        }
        document["backend"]["url"] = workspace.backend.url
        document["currentStack"] = _stack(workspace)
    except UserError as error:
        # What is missing is part of the answer.
        errors.append(str(error))
    document["dependencies"] = _packages(every=arguments.transitive)
    document["errors"] = errors
    if arguments.json:
        print_json(document)
    else:
        _print_about(document)
    return 0


def _stack(workspace: Workspace) -> dict[str, Any]:
    checkpoint = workspace.backend.checkpoint(workspace.stack)
    pending = (checkpoint.deployment or {}).get("pending_operations") or ()
    return {
        "name": workspace.stack.name,
        "fullyQualifiedName": str(workspace.stack),
        "resources": [{"type": r["type"], "urn": r["urn"]} for r in checkpoint.resources],
        "pendingOps": [
            {"type": operation["type"], "urn": operation["resource"]["urn"]}
            for operation in pending
        ],
    }


def _print_about(document: dict[str, Any]) -> None:
    titles = {"cliAbout": "CLI", "currentStack": "Current stack"}
    for key, value in document.items():
        if not value:
            continue
        print(titles.get(key, key.capitalize()))
        if isinstance(value, dict):
            for name, text in value.items():
                shown = len(text) if isinstance(text, list) else text
                print(f"  {name:<20}{shown}")
        elif key == "dependencies":
            for package in value:
                print(f"  {package['name']:<28}{package['version']}")
        else:
            for line in value:
                print(f"  {line}")
        print()


def _packages(*, every: bool) -> list[dict[str, str]]:
    from importlib.metadata import distributions

    found = {(d.metadata["Name"], d.version) for d in distributions() if d.metadata["Name"]}
    return [
        {"name": name, "version": version}
        for name, version in sorted(found, key=lambda pair: pair[0].lower())
        if every or name.lower().startswith("pulumi")
    ]


def _login(arguments: argparse.Namespace) -> int:
    home = address.pulumi_home()
    given = arguments.url or arguments.cloud_url
    if arguments.local and given:
        raise UserError("--local is the home folder: leave the address out", ExitCode.CONFIGURATION)
    url = "file://~" if arguments.local else given or os.environ.get("PULUMI_BACKEND_URL")
    if not url:
        raise UserError(
            "a login needs an address: `login file:///path/to/a/folder`, or --local for the home"
            " folder; Pulumi Cloud needs the Pulumi CLI",
            ExitCode.CONFIGURATION,
        )
    folder = address.parse(url)
    credentials = _credentials(home)
    credentials.setdefault("accessTokens", {})[url] = ""
    credentials.setdefault("accounts", {})[url] = {"accessToken": "", "lastValidatedAt": _NEVER}
    _save(home, {**credentials, "current": url})
    print(f"Logged in to {socket.gethostname()} as {_user()} (file://{folder})")
    if os.environ.get("PULUMI_BACKEND_URL", url) != url:
        print("PULUMI_BACKEND_URL is set to another address and goes first.", file=sys.stderr)
    return 0


def _logout(arguments: argparse.Namespace) -> int:
    home = address.pulumi_home()
    given = arguments.url or arguments.cloud_url
    if arguments.all and (given or arguments.local):
        raise UserError("--all means every address: name none", ExitCode.CONFIGURATION)
    credentials = _credentials(home)
    if arguments.all:
        _save(home, {})
        print("Logged out of everything")
        return 0
    url = "file://~" if arguments.local else given or credentials.get("current")
    known = credentials.get("accounts") or {}
    if not url or (url not in known and url != credentials.get("current")):
        raise UserError(f"not logged in{f' to {url}' if url else ''}; nothing was changed")
    for name in ("accessTokens", "accounts"):
        credentials[name] = {k: v for k, v in (credentials.get(name) or {}).items() if k != url}
    if credentials.get("current") == url:
        credentials.pop("current")
    _save(home, credentials)
    print(f"Logged out of {url}")
    return 0


def _credentials(home: Path) -> dict[str, Any]:
    file = home / "credentials.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"could not read {file}: {error}") from error
    if not isinstance(document, dict):
        raise UserError(f"{file} is damaged: it has to hold a JSON object")
    return document


def _save(home: Path, credentials: dict[str, Any]) -> None:
    file = home / "credentials.json"
    write_bytes(file, json.dumps(credentials, indent=4).encode(), durable=False)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In containers the user often has no name.
        return str(os.getuid())
