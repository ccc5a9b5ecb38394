"""How a component is made: several resources as one, whose token is its module and class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

import pulumi

Told = Mapping[str, pulumi.Input[Any]]
"""What a component registers as its outputs."""


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class _Declared(pulumi.ComponentResource):
    token: ClassVar[str]
    child: pulumi.ResourceOptions
    """Options of what it owns."""

    def __init_subclass__(cls, module: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.token = f"gpu-clusters:{module}:{cls.__name__}"
        if module:
            # What it generates takes the arguments; the resource itself begins as all components do.
            cls._take = dataclass(kw_only=True, eq=False, repr=False)(cls).__init__  # type: ignore[attr-defined]
            del cls.__init__

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None, **args: Any) -> None:
        super().__init__(self.token, name, None, opts)
        self._take(**args)  # type: ignore[attr-defined]
        self.child = pulumi.ResourceOptions(parent=self)
        self.register_outputs(self.declare() or {})

    def declare(self) -> Told | None:
        """Make what it owns, and set its outputs."""
        raise NotImplementedError


class Component(_Declared):
    """Its arguments are the fields of its class, by name; what is `field(init=False)` it sets itself."""

    if TYPE_CHECKING:  # what every component takes before its own
        name: str = field(kw_only=False)
        opts: pulumi.ResourceOptions | None = field(default=None, kw_only=False)
