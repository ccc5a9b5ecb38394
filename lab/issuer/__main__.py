"""`python -m lab.issuer`: the lab's issuer of tokens.

serve FOLDER                     serve in the foreground (what `start` runs)
start FOLDER
stop FOLDER
status FOLDER
token FOLDER TENANT [SECONDS]    print a token
rotate FOLDER                    sign with a new key from now on
"""

import sys
from pathlib import Path

from lab import issuer
from lab.issuer.model import IssuerError, IssuerFolder


def _run(command: str, folder: Path, rest: list[str]) -> int:
    if command == "serve":
        from lab.issuer.server import serve

        serve(IssuerFolder(folder))
    elif command == "start":
        print(issuer.start(folder).url)
    elif command == "stop":
        issuer.stop(folder)
    elif command == "status":
        found = issuer.status(folder)
        print(f"{found.url} (process {found.pid})" if found.running else "not running")
        return 0 if found.running else 3
    elif command == "rotate":
        print(issuer.rotate(folder))
    elif command == "token" and rest and all(part.isdecimal() for part in rest[1:]):
        print(issuer.token(folder, rest[0], *(float(part) for part in rest[1:2])))
    else:
        sys.stderr.write(__doc__ or "")
        return 2
    return 0


def main(arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    if len(arguments) < len(("COMMAND", "FOLDER")):
        sys.stderr.write(__doc__ or "")
        return 2
    try:
        return _run(arguments[0], Path(arguments[1]), arguments[2:])
    except IssuerError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
