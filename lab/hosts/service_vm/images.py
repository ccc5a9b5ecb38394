"""Stand-ins for `qemu-img` and `genisoimage`: images are small texts that say what is in them.

Sources: qemu-img(1), genisoimage(1).
"""

from __future__ import annotations

import json

from lab.hosts.call import Answer, Call
from lab.hosts.service_vm import service_vm


def qemu_img(call: Call) -> Answer:
    words = list(call.arguments)
    if words in (["--version"], ["-V"]):
        return Answer.out("qemu-img version 10.1.0 (Debian 1:10.1.0+ds-5ubuntu2)")
    verb = words.pop(0) if words else ""
    if verb not in _VERBS:
        return Answer.error(f"qemu-img: Command not found: {verb}", 1)
    return _VERBS[verb](call, words)


def _create(call: Call, words: list[str]) -> Answer:
    options: dict[str, str] = {}
    names: list[str] = []
    while words:
        word = words.pop(0)
        if word in {"-f", "-b", "-F", "-o"} and words:
            options[word] = words.pop(0)
        elif not word.startswith("-"):
            names.append(word)
    if not names:
        return Answer.error("qemu-img: create: Expecting image file name", 1)
    path, size = names[0], names[1] if len(names) > 1 else "0G"
    backing = options.get("-b")
    if backing is not None:
        if "-F" not in options:
            return Answer.error(
                f"qemu-img: {path}: Backing file specified without backing format", 1
            )
        base = service_vm.load(call.machine, backing, "disk image")
        if base is None and call.machine.read_text(backing) is None:
            text = f"Could not open '{backing}': No such file or directory"
            return Answer.error(f"qemu-img: {path}: {text}\nCould not open backing image.", 1)
    try:
        gib = int(size.removesuffix("G"))
        service_vm.make_overlay(call.machine, path, backing or "", gib=gib)
    except OSError as error:
        return Answer.error(f"qemu-img: {path}: Could not create '{path}': {error.strerror}", 1)
    return Answer()


def _info(call: Call, words: list[str]) -> Answer:
    path = next((word for word in words if not word.startswith("-")), "")
    text = call.machine.read_text(path)
    if text is None:
        problem = f"Could not open '{path}': No such file or directory"
        return Answer.error(f"qemu-img: {problem}", 1)
    content = service_vm.load(call.machine, path, "disk image")
    lines = [f"image: {path}", f"file format: {content['format'] if content else 'raw'}"]
    if content and "gib" in content:
        lines.append(f"virtual size: {content['gib']} GiB ({content['gib'] * 1024**3} bytes)")
    if content and content.get("backing"):
        lines += [f"backing file: {content['backing']}", "backing file format: qcow2"]
    return Answer.out("\n".join(lines))


def _check(call: Call, words: list[str]) -> Answer:
    path = next((word for word in words if not word.startswith("-")), "")
    if service_vm.load(call.machine, path, "disk image") is None:
        return Answer.error(f"qemu-img: Could not open '{path}': Image is not in qcow2 format", 1)
    return Answer.out("" if "-q" in words else "No errors were found on the image.")


_VERBS = {"create": _create, "info": _info, "check": _check}


def genisoimage(call: Call) -> Answer:
    words = list(call.arguments)
    output, names = "", list[str]()
    while words:
        word = words.pop(0)
        if word in {"-output", "-o"} and words:
            output = words.pop(0)
        elif word in {"-volid", "-V"} and words:
            words.pop(0)
        elif not word.startswith("-"):
            names.append(word)
    if not output or not names:
        return Answer.error("genisoimage: Missing pathspec.", 1)
    content: dict[str, str] = {service_vm.KIND: "seed"}
    for name in names:
        path = name if name.startswith("/") else f"{call.cwd}/{name}"
        text = call.machine.read_text(path)
        if text is None:
            text = f"Invalid node - '{name}'."
            return Answer.error(f"genisoimage: No such file or directory. {text}", 255)
        content[name.rpartition("/")[2]] = text
    try:
        path = output if output.startswith("/") else f"{call.cwd}/{output}"
        file = call.machine.path(path)
        file.write_text(json.dumps(content, sort_keys=True) + "\n")
        file.chmod(0o600)
    except OSError as error:
        text = f"genisoimage: {error.strerror}. Unable to open disc image file '{output}'."
        return Answer.error(text, 255)
    return Answer()
