"""What a program of a simulated host is called, what its command line may hold, and who may run it.

    @program("apt-mark", on="ubuntu", flags="-q")
    def mark(call: Call) -> Answer: ...

What is not declared is refused in the program's own words, as the real one refuses an unknown option: no
option is accepted and ignored.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.hosts.call import Answer, Call, Given, RefusedError
from lab.hosts.faults import ToolMissing

Act = Callable[[Call], Answer | Coroutine[None, None, Answer]]
_VERSION = {("--version",), ("-V",)}
STAND_IN = "(stand-in of a simulated host)"
NOT_FOUND = 127


UNKNOWN = "{name}: unrecognized option '{option}'"


def typed(
    call: Call,
    flags: str = "",
    values: str = "",
    *,
    arguments: Sequence[str] | None = None,
    until_word: bool = False,
    unknown: str = UNKNOWN,
    exit_code: int = 1,
) -> Call:
    """The call with its command line as it was read by these options: `--a=b`, `--a b`, `-ab`.

    Args:
        call: what was typed.
        flags: the options without a value.
        values: those with one.
        arguments: the part of the command line that is read; all of it if None.
        until_word: whether all that follows the first word belongs to it.
        unknown: what is said of another option.
        exit_code: with that.

    Raises:
        RefusedError: there is another option.
    """
    known, takes = set(flags.split()), set(values.split())
    found = Given()
    rest = list(call.arguments if arguments is None else arguments)
    while rest:
        word = rest.pop(0)
        name, separator, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            found.words.append(word)
            if until_word:
                found.words.extend(rest)
                break
        elif word in known:
            found.flags.append(word)
        elif word in takes and rest:
            found.values.setdefault(word, []).append(rest.pop(0))
        elif separator and name in takes:
            found.values.setdefault(name, []).append(value)
        elif word[:2] in takes and len(word) > 2 and word[1] != "-":
            found.values.setdefault(word[:2], []).append(word[2:])
        else:
            said = unknown.format(name=call.name, option=name, letters=word.lstrip("-"))
            raise RefusedError(said, exit_code)
    return replace(call, given=found)


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    act: Act
    flags: str = ""
    values: str = ""
    """Options that have a value."""
    until_word: bool = False
    """Whether all that follows the first word belongs to it."""
    unknown: str | None = UNKNOWN
    """What is said of another option; None: the program reads its command line by itself."""
    unknown_exit: int = 1
    version: str = ""
    root: str = ""
    """What is said to whoever is not root; empty: everybody may."""
    root_exit: int = 1
    on: str = ""
    """The operating systems that have it; empty: all."""
    of: str = ""
    """The packages that bring it, by any of their names; empty: it is always there."""

    def __call__(self, call: Call) -> Answer | Coroutine[None, None, Answer]:
        try:
            answer = self._run(call)
        except RefusedError as error:
            return error.answer
        return answer if isinstance(answer, Answer) else self._awaited(answer)

    async def _awaited(self, answer: Coroutine[None, None, Answer]) -> Answer:
        try:
            return await answer
        except RefusedError as error:
            return error.answer

    def _run(self, call: Call) -> Answer | Coroutine[None, None, Answer]:
        missing = any(fault.tool == self.name for fault in call.faults.all(ToolMissing))
        if missing or (self.of and not call.machine.has_package(*self.of.split())):
            raise RefusedError(f"sh: 1: {self.name}: not found", NOT_FOUND)
        if self.version and call.arguments in _VERSION:
            return Answer.out(f"{self.version} {STAND_IN}")
        if self.unknown is not None:
            call = typed(
                call,
                self.flags,
                self.values,
                until_word=self.until_word,
                unknown=self.unknown,
                exit_code=self.unknown_exit,
            )
        if self.root and not call.is_root:
            raise RefusedError(self.root, self.root_exit)
        return self.act(call)


def program(name: str, **more: Any) -> Callable[[Act], Program]:
    """Declare what runs under this name; `more` as the fields of `Program`."""
    return lambda act: Program(name, act, **more)
