"""`--diff`: each step with the properties that differ, as text."""

from collections.abc import Iterator, Mapping
from typing import Any

from engine.display.base import Options, is_root
from engine.display.lines import Text
from engine.display.report import shown
from engine.display.rows import Row
from engine.display.steps import KINDS, is_replacement_part, protection_changes
from engine.events import Event, ResourceOutputs, ResourcePre, StepMetadata
from engine.state import ResourceState
from engine.values import Value, blinded, contains_secret, reveal_all, values_to_state

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}
_HIDDEN = "[secret]"


class Differences(Text):
    """Prints the difference of each step when it is known."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._refreshing: set[str] = set()

    def tell(self, event: Event, row: Row | None) -> None:
        del row
        if isinstance(event, ResourcePre):
            if event.metadata.op == "refresh":
                self._refreshing.add(event.metadata.urn)
            elif self._wanted(event.metadata):
                self._print(event.metadata, "inputs")
        elif isinstance(event, ResourceOutputs) and event.metadata.urn in self._refreshing:
            # What a refresh found is known only now.
            self._refreshing.discard(event.metadata.urn)
            if event.metadata.op in ("update", "delete"):
                self._print(event.metadata, "outputs")

    def _wanted(self, metadata: StepMetadata) -> bool:
        if metadata.op == "same":
            return self.options.show_same or protection_changes(metadata)
        return self.options.show_replacement_steps or not is_replacement_part(metadata)

    def _print(self, metadata: StepMetadata, field: str) -> None:
        """Print one step; `field`: a program says what it wants, a refresh what there is."""
        kind = KINDS[metadata.op]
        name = metadata.urn.split("::", 3)[-1]
        header = f"{kind.sign:<2} {metadata.type}: {name} ({kind.plan or 'same'})"
        lines = [self.paint(header, kind.colour)]
        state = metadata.old or metadata.new
        if state is not None and state.id:
            lines.append(f"    [id={self.options.mask.text(state.id)}]")
        lines.append(f"    [urn={metadata.urn}]")
        if metadata.keys:
            lines.append(f"    [replaced because of: {', '.join(metadata.keys)}]")
        lines += [
            self.paint(f"    {'    ' * depth}{sign} {text}", _COLOURS.get(sign, ""))
            for sign, depth, text in self._properties(metadata, field)
        ]
        print("\n".join(lines), flush=True)

    def _properties(self, metadata: StepMetadata, field: str) -> Iterator[tuple[str, int, str]]:
        if is_root(metadata.urn):
            return iter(())  # its outputs stand at the end
        old, new = metadata.old, metadata.new
        hidden = set(new.hide_diff if new else ())
        before, after = self._texts(old, field), self._texts(new, field)
        changed = _changed_secrets(old, new, field)
        return (
            entry
            for entry in compare(before, after, changed)
            if entry[2].split(":", 1)[0].strip() not in hidden
        )

    def _texts(self, state: ResourceState | None, field: str) -> dict[str, Any]:
        if state is None:
            return {}
        values: dict[str, Value] = getattr(state, field)
        # The pickled provider is code, not configuration.
        kept = {key: value for key, value in values.items() if key != "__provider"}
        document: dict[str, Any] = self.options.mask.value(values_to_state(kept, blinded))
        return document


def _changed_secrets(
    old: ResourceState | None, new: ResourceState | None, field: str
) -> frozenset[str]:
    """Names of properties whose secrets are other ones: both sides show as ``[secret]``."""
    if old is None or new is None:
        return frozenset()
    before, after = reveal_all(getattr(old, field)), reveal_all(getattr(new, field))
    return frozenset(
        name
        for name in before.keys() & after.keys()
        if before[name] != after[name] and contains_secret(getattr(new, field)[name])
    )


def compare(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    changed: frozenset[str] = frozenset(),
    depth: int = 0,
) -> Iterator[tuple[str, int, str]]:
    """The entries that differ: sign, depth and text. What is new or gone is shown as a whole."""
    width = max((len(name) for name in old.keys() | new.keys()), default=0)
    for name in sorted(old.keys() | new.keys()):
        label = name.ljust(width)
        if name not in old:
            yield "+", depth, f"{label}: {shown(new[name])}"
        elif name not in new:
            yield "-", depth, f"{label}: {shown(old[name])}"
        elif old[name] != new[name]:
            yield from _entry(label, old[name], new[name], depth)
        elif name in changed:
            yield "~", depth, f"{label}: {_HIDDEN} => {_HIDDEN}"


def _entry(label: str, old: Any, new: Any, depth: int) -> Iterator[tuple[str, int, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield "~", depth, f"{label}:"
        yield from compare(old, new, depth=depth + 1)
    elif isinstance(old, list) and isinstance(new, list):
        yield "~", depth, f"{label}:"
        before = {f"[{i}]": item for i, item in enumerate(old)}
        after = {f"[{i}]": item for i, item in enumerate(new)}
        yield from compare(before, after, depth=depth + 1)
    else:
        yield "~", depth, f"{label}: {shown(old)} => {shown(new)}"
