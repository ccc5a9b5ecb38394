"""Which image a tenant may have pulled.

A machine's containerd pulls from the machine's own network, past every policy of the tenant. So a tenant
pulls from the registries and paths that `images.allowed` lists, or, without a list, from any registry with a
name of the public DNS. Such a name may still lead to an address of yours: only a list closes that.

Source: github.com/distribution/reference (reference.go, normalize.go): the part before the first `/` is a
registry if it has a dot, a colon or an upper-case letter or is `localhost`; all else is at docker.io, and a
path of one part is below `library/` there. The patterns mean the same to Python and to CEL, which has RE2.
"""

import re
from collections.abc import Sequence

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_PORT = ":[0-9]{1,5}"
_NAME = f"(?:localhost|{_LABEL}(?:[.]{_LABEL})+)"
_REGISTRY = f"(?:{_NAME}(?:{_PORT})?|{_LABEL}{_PORT})"
_PART = "[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*"
_PATH = f"{_PART}(?:/{_PART})*"
_TAG = ":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = "@sha256:[0-9a-f]{64}"
_END = f"(?:{_TAG}(?:{_DIGEST})?|{_DIGEST})"

_ANY_LABEL = "[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?"

REFERENCE = f"^(?:{_ANY_LABEL}(?:[.]{_ANY_LABEL})*(?:{_PORT})?/)?{_PATH}{_END}$"
"""What a tenant may write: with a tag or a digest, without which what runs would depend on the day."""
FULL = f"^{_REGISTRY}/{_PATH}{_END}$"
"""The same with its registry, as `full` writes it."""
SOURCE = f"^{_REGISTRY}(?:/{_PATH})?$"
"""An entry of a list: a registry, or a path at a registry, with everything below."""
REPOSITORY = "^[^@]+/[^:@]+"
"""Of a full image: all but tag and digest."""
PUBLIC = rf"^(?:{_LABEL}[.])+[a-z][-a-z0-9]*(?:{_PORT})?/"
"""The registry has a name of several parts whose last begins with a letter: no address in any form."""
LOCAL_ENDS = (
    "arpa", "corp", "home", "internal", "intranet", "lan", "local", "localdomain", "localhost", "private",
    "svc",
)  # fmt: skip
"""Last parts of names that no public registry has: of clusters, clouds' metadata services, offices, homes."""
LOCAL = f"^[^/]*[.](?:{'|'.join(LOCAL_ENDS)})(?:{_PORT})?/"

_DOCKER = "docker.io"


def full(reference: str) -> str:
    """The image with its registry, whose name is lower-case."""
    first, slash, rest = reference.partition("/")
    if slash and (set(first) & set(".:") or first == "localhost" or first != first.lower()):
        registry = first.lower()
        if registry != f"index.{_DOCKER}":
            return f"{registry}/{rest}"
        reference = rest
    return f"{_DOCKER}/{reference}" if "/" in reference else f"{_DOCKER}/library/{reference}"


def is_allowed(image: str, sources: Sequence[str]) -> bool:
    """Whether a tenant with this list may have the image pulled; `image` is a full one."""
    if not re.fullmatch(FULL, image):
        return False
    if not sources:
        return bool(re.match(PUBLIC, image)) and not re.match(LOCAL, image)
    repository = re.match(REPOSITORY, image)
    return repository is not None and any(
        f"{repository[0]}/".startswith(f"{source}/") for source in sources
    )


def allowance(sources: Sequence[str]) -> str:
    """In words, where images may come from."""
    if sources:
        return f"images come from {', '.join(sources)}"
    return (
        "images come from registries with a name of the public DNS, not from an address, localhost or a "
        "name of a local network"
    )


def example(sources: Sequence[str]) -> str:
    """An image, of which there need be none, that a tenant with this list may have pulled."""
    return f"{next(iter(sources), 'registry.example.com')}/example:1"
