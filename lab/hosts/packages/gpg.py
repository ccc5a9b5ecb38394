"""Stand-in for `gpg --show-keys --with-colons FILE`: fingerprints of keys that the lab's `curl` brought."""

from __future__ import annotations

from lab.hosts.call import Answer, Call

KEYS = {
    "https://download.docker.com/linux/ubuntu/gpg": "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
    "https://nvidia.github.io/libnvidia-container/gpgkey": (
        "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
    ),
}
"""Address and fingerprint of the keys that repositories are signed with."""
_MARK = "(key of a simulated repository) "


def key(address: str) -> bytes | None:
    fingerprint = KEYS.get(address)
    return f"{_MARK}{fingerprint}\n".encode() if fingerprint else None


def run(call: Call) -> Answer:
    words = [word for word in call.arguments if not word.startswith("-")]
    if "--show-keys" not in call.arguments or "--with-colons" not in call.arguments or not words:
        return Answer.error("gpg: only --show-keys --with-colons FILE on a simulated host", 2)
    text = call.machine.read_text(words[-1]) or ""
    if not text.startswith(_MARK):
        return Answer.error("gpg: no valid OpenPGP data found.", 2)
    return Answer.out(f"pub:-:4096:1:0:0:::-:::scESC::::::23::0:\nfpr:::::::::{text.split()[-1]}:")
