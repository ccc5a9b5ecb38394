"""Stand-ins for `update-initramfs` and `dracut`: what of modprobe.d the kernel starts with."""

from __future__ import annotations

from lab.hosts.call import Answer, Call
from lab.hosts.faults import InitramfsFails
from lab.hosts.machine import Machine

_MODPROBE = "/etc/modprobe.d"


def update(call: Call) -> Answer:
    """`update-initramfs -u [-k all]`."""
    if "-u" not in call.arguments and "-c" not in call.arguments:
        return Answer.error("Usage: update-initramfs {-c|-d|-u} [-k version] [-v] [-b dir]", 1)
    return _build(
        call,
        "update-initramfs: Generating /boot/initrd.img-6.8.0-60-generic",
        "update-initramfs: failed for /boot/initrd.img-6.8.0-60-generic with 1.",
    )


def dracut(call: Call) -> Answer:
    """`dracut --force --regenerate-all`."""
    if not {"-f", "--force"} & set(call.arguments):
        return Answer.error(
            "dracut: Will not override existing initramfs (/boot/initramfs-5.14.0-570.el9.x86_64.img) "
            "without --force",
            1,
        )
    return _build(call, "", "dracut: creation of the image failed")


def blacklisted(machine: Machine) -> frozenset[str]:
    """Modules that the files in the initramfs keep from loading by themselves."""
    return frozenset(machine.state.get("initramfs", []))


def read_blacklist(machine: Machine) -> list[str]:
    """`blacklist` lines of modprobe.d(5)."""
    folder = machine.path(_MODPROBE)
    names: set[str] = set()
    for file in sorted(folder.glob("*.conf")) if folder.is_dir() else []:
        for line in file.read_text().splitlines():
            words = line.split()
            if words[:1] == ["blacklist"] and len(words) > 1:
                names.add(words[1].replace("-", "_"))
    return sorted(names)


def _build(call: Call, said: str, failure: str) -> Answer:
    if not call.is_root:
        return Answer.error("W: this program must be run as root", 1)
    if call.faults.first(InitramfsFails):
        return Answer.error(f"cp: error writing: No space left on device\n{failure}", 1)
    call.machine.state["initramfs"] = read_blacklist(call.machine)
    call.machine.note("initramfs", blacklist=call.machine.state["initramfs"])
    return Answer.out(said)
