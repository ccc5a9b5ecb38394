"""The engine's own provider: other stacks' outputs as a resource."""

from __future__ import annotations

from lab.engine.answers import Checked, Comparison, Failure, Live, ProviderError, Subject
from lab.engine.diff import Changes, Diff
from lab.engine.request import StackOutputs
from lab.engine.state import STACK_TYPE
from lab.engine.values import Value, Values, contains_secret, fresh

STACK_REFERENCE = "pulumi:pulumi:StackReference"


class StackReferences:
    """Serves `StackReference`; the id is the name of the stack, `organization/project/stack`."""

    supports_preview = True

    def __init__(self, stacks: StackOutputs | None) -> None:
        self._stacks = stacks

    def check(self, subject: Subject, olds: Values, news: Values, *, seed: bytes) -> Checked:  # noqa: ARG002
        """Only reading by name is supported."""
        if subject.type != STACK_REFERENCE:
            raise ProviderError(f"the engine has no resource of the type '{subject.type}'")
        return Checked(news)

    def diff(self, wanted: Comparison) -> Diff:
        """Another name is another stack."""
        if wanted.old_inputs.get("name") == wanted.news.get("name"):
            return Diff(Changes.NONE)
        return Diff(Changes.SOME, replace_keys=("name",))

    def create(
        self,
        subject: Subject,
        inputs: Values,
        *,
        timeout: float,  # noqa: ARG002
        preview: bool,  # noqa: ARG002
    ) -> tuple[str, Values]:
        """Look the stack up; what its name says is not made here."""
        name = inputs.get("name")
        if not isinstance(name, str):
            return "", {}
        live = self.read(subject, name, inputs, {})
        return name, live.outputs or {}

    def read(self, subject: Subject, id_: str, inputs: Values, outputs: Values) -> Live:  # noqa: ARG002
        """The outputs of the stack as they are now.

        Raises:
            ProviderError: there is no such stack.
        """
        if subject.type != STACK_REFERENCE:
            raise ProviderError(f"the engine has no resource of the type '{subject.type}'")
        if self._stacks is None:
            raise ProviderError("stack references need a backend with other stacks")
        snapshot = self._stacks(id_)
        if snapshot is None:
            raise ProviderError(f'unknown stack "{id_}"')
        found: Values = {}
        for state in snapshot.resources:
            if state.type == STACK_TYPE and not state.delete:
                found = {key: fresh(value) for key, value in state.outputs.items()}
        secret: list[Value] = [k for k in sorted(found) if contains_secret(found[k])]
        name: Value = inputs.get("name", id_)
        return Live(
            id_, {"name": name, "outputs": found, "secretOutputNames": secret}, {"name": name}
        )

    def update(self, *_: object, **__: object) -> Values:
        """Nothing of another stack can be changed from here."""
        raise ProviderError("a stack reference cannot be updated")

    def delete(self, *_: object, **__: object) -> None:
        """The stack stays."""

    def invoke(
        self,
        token: str,
        args: Values,  # noqa: ARG002
        *,
        preview: bool,  # noqa: ARG002
    ) -> tuple[Values, tuple[Failure, ...]]:
        """No functions yet."""
        raise ProviderError(f"the engine has no function '{token}'")
