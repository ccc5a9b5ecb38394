"""A resource that our own provider keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi

PACKAGE = "gpu-clusters"


class Resource(pulumi.CustomResource):
    """Base of our resources; `name` is that of the class in type tokens, which stand in users' state."""

    type_token: ClassVar[str] = ""

    def __init_subclass__(cls, module: str = "gpu", name: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if name:
            cls.type_token = f"{PACKAGE}:{module}:{name}"

    def __init__(
        self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.type_token, name, dict(props), opts)
