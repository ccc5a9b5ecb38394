"""Stand-in for `apt-cache madison`: the versions of a package that the host's sources have.

Docker's and NVIDIA's packages are there once a file in /etc/apt/sources.list.d names their repository.
"""

from __future__ import annotations

from lab.hosts.call import Answer, Call
from lab.hosts.packages import apt_get


def run(call: Call) -> Answer:
    verb, *names = call.arguments or ("",)
    if verb != "madison":
        return Answer.error(f"E: Invalid operation {verb}", 100)
    lines = [
        f"{name:>10} | {version:>10} | http://repository.test noble/main amd64 Packages"
        for name in names
        for version in apt_get.versions(call, name)
    ]
    return Answer.out("\n".join(lines))
