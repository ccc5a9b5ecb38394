"""A resource that our own provider keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pulumi

if TYPE_CHECKING:
    from gpuclusters.providers.reconciling import ReconcilingProvider

PACKAGE = "gpu-clusters"


class Resource(pulumi.CustomResource):
    """Base of our resources; `name` is that of the class in type tokens, which stand in users' state."""

    type_token: ClassVar[str] = ""
    secret_outputs: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, module: str = "gpu", name: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if name:
            cls.type_token = f"{PACKAGE}:{module}:{name}"

    def __init__(
        self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        secret = pulumi.ResourceOptions(additional_secret_outputs=list(self.secret_outputs))
        merged = pulumi.ResourceOptions.merge(opts, secret) if self.secret_outputs else opts
        super().__init__(self.type_token, name, dict(props), merged)


class ModelResource(Resource):
    """Inputs are the fields of the provider's model, outputs are the annotations."""

    provider: ClassVar[type[ReconcilingProvider[Any]]]

    def __init__(
        self,
        name: str,
        /,  # an input may have this name too
        opts: pulumi.ResourceOptions | None = None,
        **inputs: pulumi.Input[Any],
    ) -> None:
        super().__init__(name, properties(type(self), inputs), opts)


class ConvergingResource(ModelResource):
    drift: pulumi.Output[Sequence[Mapping[str, Any]]]
    """Findings of the last refresh: code, problem, path, level; empty after `up`."""


def properties(
    kind: type[ModelResource], inputs: Mapping[str, pulumi.Input[Any]]
) -> Mapping[str, pulumi.Input[Any]]:
    """Inputs, checked by name, sensitive ones as secrets; and outputs that are not known yet."""
    fields, sensitive = kind.provider.model.model_fields, kind.provider.sensitive
    wrong = [name for name in inputs if name not in fields]
    wrong += [n for n, field in fields.items() if field.is_required() and n not in inputs]
    if wrong:
        raise TypeError(f"{kind.__name__}: unknown or missing inputs: {', '.join(wrong)}")
    given = {
        name: pulumi.Output.secret(value) if name in sensitive else value
        for name, value in inputs.items()
        if value is not None
    }
    bases = [base for base in kind.__mro__ if issubclass(base, ModelResource)]
    outputs = {
        n for base in bases for n in vars(base).get("__annotations__", ()) if n != "provider"
    }
    return {**given, **dict.fromkeys(sorted(outputs - set(inputs)))}
