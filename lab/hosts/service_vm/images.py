"""Stand-ins for `qemu-img` and `genisoimage`: images are small texts that say what is in them.

Sources: qemu-img(1), genisoimage(1).
"""

import json

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.program import program
from lab.hosts.service_vm import service_vm

_DISK = "disk image"


@program("qemu-img", of="qemu-utils qemu-img", flags="-q --force-share", values="-f -b -F")
def qemu_img(call: Call) -> Answer:
    """`qemu-img create -f qcow2 -b BASE -F FORMAT FILE SIZE`, `info FILE`, `check FILE`."""
    match call.words:
        case ["create", path, *size] if call.value("-b") and call.value("-F"):
            return _create(call, path, int("".join(size).removesuffix("G") or 0))
        case ["info", path]:
            return _info(call, path)
        case ["check", path]:
            if service_vm.load(call.machine, path, _DISK) is None:
                raise RefusedError(
                    f"qemu-img: Could not open '{path}': Image is not in qcow2 format"
                )
            return Answer()
    raise RefusedError(f"qemu-img: Command not found: {call.verb}")


def _create(call: Call, path: str, gib: int) -> Answer:
    backing = call.value("-b") or ""
    if call.machine.read_text(backing) is None:
        text = f"Could not open '{backing}': No such file or directory"
        raise RefusedError(f"qemu-img: {path}: {text}\nCould not open backing image.")
    try:
        service_vm.make_overlay(call.machine, path, backing, gib=gib)
    except OSError as error:
        text = f"Could not create '{path}': {error.strerror}"
        raise RefusedError(f"qemu-img: {path}: {text}") from error
    return Answer()


def _info(call: Call, path: str) -> Answer:
    if call.machine.read_text(path) is None:
        raise RefusedError(f"qemu-img: Could not open '{path}': No such file or directory")
    content = service_vm.load(call.machine, path, _DISK) or {}
    lines = [f"image: {path}", f"file format: {content.get('format', 'raw')}"]
    if "gib" in content:
        lines.append(f"virtual size: {content['gib']} GiB ({content['gib'] * 1024**3} bytes)")
    if content.get("backing"):
        lines += [f"backing file: {content['backing']}", "backing file format: qcow2"]
    return Answer.out("\n".join(lines))


@program("genisoimage", of="genisoimage", flags="-quiet -joliet -rock", values="-output -volid")
def genisoimage(call: Call) -> Answer:
    output = call.value("-output")
    if not output or not call.words:
        raise RefusedError("genisoimage: Missing pathspec.")
    content: dict[str, str] = {service_vm.KIND: "seed"}
    for name in call.words:
        text = call.machine.read_text(call.located(name))
        if text is None:
            said = f"No such file or directory. Invalid node - '{name}'."
            raise RefusedError(f"genisoimage: {said}", 255)
        content[name.rpartition("/")[2]] = text
    try:
        text = json.dumps(content, sort_keys=True) + "\n"
        call.machine.write(call.located(output), text, mode=0o600)
    except OSError as error:
        text = f"genisoimage: {error.strerror}. Unable to open disc image file '{output}'."
        raise RefusedError(text, 255) from error
    return Answer()
