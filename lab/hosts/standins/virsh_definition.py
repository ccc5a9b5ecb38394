"""The file of a definition, as `virsh define` and `virsh net-define` read it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from lab.hosts.standins.call import Answer, Call


def read(call: Call, words: list[str], command: str, kind: str) -> ET.Element | Answer:
    """The document, or what virsh says when it is none.

    Args:
        call: the call of virsh.
        words: what follows the command, without its options: the file.
        command: `define` or `net-define`.
        kind: `domain` or `network`.
    """
    if len(words) != 1:
        return Answer.error(f"error: command '{command}' requires <file> option", 1)
    path = words[0] if words[0].startswith("/") else f"{call.cwd}/{words[0]}"
    xml = call.machine.read_text(path)
    if xml is None:
        return Answer.error(f"error: Failed to open file '{words[0]}': No such file", 1)
    try:
        return ET.fromstring(xml)  # noqa: S314 - root's own
    except ET.ParseError as error:
        failed = f"error: Failed to define {kind} from {words[0]}\nerror: "
        return Answer.error(f"{failed}({kind}_definition) {error}", 1)
