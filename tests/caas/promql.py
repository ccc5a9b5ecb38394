"""Reads PromQL far enough to say which metrics and labels an expression names; refuses the rest.

The grammar is that of Prometheus without subqueries, `@` and `atan2`; Grafana's variables stand for
themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

AGGREGATIONS = frozenset(
    {
        "avg",
        "bottomk",
        "count",
        "count_values",
        "group",
        "limitk",
        "max",
        "min",
        "quantile",
        "stddev",
        "stdvar",
        "sum",
        "topk",
    }
)
FUNCTIONS = frozenset(
    {
        "abs",
        "absent",
        "absent_over_time",
        "avg_over_time",
        "ceil",
        "changes",
        "clamp",
        "clamp_max",
        "clamp_min",
        "count_over_time",
        "day_of_week",
        "delta",
        "deriv",
        "exp",
        "floor",
        "histogram_quantile",
        "hour",
        "idelta",
        "increase",
        "irate",
        "label_join",
        "label_replace",
        "last_over_time",
        "ln",
        "max_over_time",
        "min_over_time",
        "present_over_time",
        "quantile_over_time",
        "rate",
        "resets",
        "round",
        "scalar",
        "sort",
        "sort_desc",
        "sqrt",
        "sum_over_time",
        "time",
        "timestamp",
        "vector",
    }
)
_RANGED = frozenset(
    {
        "changes",
        "delta",
        "deriv",
        "idelta",
        "increase",
        "irate",
        "rate",
        "resets",
        "absent_over_time",
        "avg_over_time",
        "count_over_time",
        "last_over_time",
        "max_over_time",
        "min_over_time",
        "present_over_time",
        "quantile_over_time",
        "sum_over_time",
    }
)
_PRECEDENCE = {"or": 1, "and": 2, "unless": 2}
_PRECEDENCE |= dict.fromkeys(("==", "!=", "<=", ">=", "<", ">"), 3)
_PRECEDENCE |= {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "^": 6}
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<duration>\[(?:\d+[smhdwy]+|\$__(?:rate_interval|interval|range))\])
    | (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},])
    )""",
    re.VERBOSE,
)


class PromqlError(ValueError):
    """This is not PromQL, or more of it than is read here."""


@dataclass(frozen=True)
class Selector:
    """A metric as an expression names it, with the labels it asks for."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""
    ranged: bool


@dataclass
class Found:
    """What (a part of) an expression names."""

    selectors: list[Selector] = field(default_factory=list)
    grouped: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Label of a `by`, `without`, `on` or `ignoring`, and the metrics it has to be a label of."""

    def add(self, other: Found) -> None:
        self.selectors += other.selectors
        self.grouped += other.grouped

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(selector.metric for selector in self.selectors)


def parse(text: str) -> Found:
    """What an expression names; `PromqlError` says where it stops making sense."""
    parser = _Parser(_tokens(text), text)
    found = parser.expression(0)
    parser.end()
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise PromqlError(f"cannot read {text[at:]!r}")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


class _Parser:
    def __init__(self, tokens: Sequence[tuple[str, str]], text: str) -> None:
        self._tokens = [*tokens, ("end", "")]
        self._text = text
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _next(self, *kinds: str) -> str:
        kind, value = self._tokens[self._at]
        if kinds and kind not in kinds:
            raise PromqlError(f"{value!r} in {self._text!r}: expected {' or '.join(kinds)}")
        self._at += 1
        return value

    def _expect(self, value: str) -> None:
        if self._next() != value:
            raise PromqlError(f"{self._tokens[self._at - 1][1]!r} in {self._text!r}, not {value!r}")

    def _skip(self, value: str) -> bool:
        if self._tokens[self._at] in {("sign", value), ("name", value)}:
            self._at += 1
            return True
        return False

    def end(self) -> None:
        self._next("end")

    def expression(self, least: int) -> Found:
        found = self._operand()
        while (precedence := _PRECEDENCE.get(self._peek(), 0)) > least:
            self._next()
            labels: list[str] = []
            self._skip("bool")
            for word in ("on", "ignoring", "group_left", "group_right"):
                if self._skip(word):
                    labels += self._labels()
            right = self.expression(precedence)
            found.grouped += [(label, found.metrics + right.metrics) for label in labels]
            found.add(right)
        return found

    def _operand(self) -> Found:
        if self._skip("-"):
            return self._operand()
        if self._tokens[self._at][0] == "number":
            self._next()
            return Found()
        if self._skip("("):
            found = self.expression(0)
            self._expect(")")
            return found
        name = self._next("name")
        if name in AGGREGATIONS:
            return self._aggregation()
        if self._peek() == "(":
            return self._call(name)
        return self._selector(name)

    def _aggregation(self) -> Found:
        labels = self._grouping()
        found = self._arguments()
        labels += self._grouping()
        found.grouped += [(label, found.metrics) for label in labels]
        return found

    def _grouping(self) -> list[str]:
        return self._labels() if self._skip("by") or self._skip("without") else []

    def _labels(self) -> list[str]:
        labels: list[str] = []
        self._expect("(")
        while not self._skip(")"):
            labels.append(self._next("name"))
            if self._peek() != ")":
                self._expect(",")
        return labels

    def _call(self, name: str) -> Found:
        if name not in FUNCTIONS:
            raise PromqlError(f"there is no function {name!r} (in {self._text!r})")
        found = self._arguments()
        if name in _RANGED and not all(selector.ranged for selector in found.selectors):
            raise PromqlError(f"{name} needs a range (in {self._text!r})")
        return found

    def _arguments(self) -> Found:
        found = Found()
        self._expect("(")
        while not self._skip(")"):
            if self._tokens[self._at][0] == "string":
                self._next()
            else:
                found.add(self.expression(0))
            if self._peek() != ")":
                self._expect(",")
        return found

    def _selector(self, metric: str) -> Found:
        matchers: list[tuple[str, str, str]] = []
        if self._skip("{"):
            while not self._skip("}"):
                label, sign = self._next("name"), self._next("sign")
                if sign not in {"=", "!=", "=~", "!~"}:
                    raise PromqlError(f"{sign!r} compares no labels (in {self._text!r})")
                matchers.append((label, sign, self._next("string")[1:-1]))
                if self._peek() != "}":
                    self._expect(",")
        ranged = self._tokens[self._at][0] == "duration"
        if ranged:
            self._next()
        return Found([Selector(metric, tuple(matchers), ranged)])
