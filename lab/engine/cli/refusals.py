"""What Pulumi's CLI has and this one has not: by name, with the reason and what to do instead.

`docs/limits.md` lists the same. A flag or a verb is either carried out or in one of these tables;
none is accepted and ignored.
"""

from __future__ import annotations

from lab.engine.usererror import ExitCode, UserError

_CLOUD = "it belongs to Pulumi Cloud; a file backend has none"
_PLANS = "update plans, which Pulumi itself calls experimental: compare `preview --json` instead"
_POLICIES = "policy packs run in the Pulumi CLI only: use it, or test the rules as plain Python"
_AUTOMATION = "it is for Pulumi's Automation API, which needs the Pulumi CLI"
_TRACES = "there are no traces; `--logtostderr --verbose 3` says what happens and when"
_CODE = "it generates or installs code: use the Pulumi CLI"

VERBS = {
    "ai": _CLOUD,
    "api": _CLOUD,
    "console": _CLOUD,
    "convert": _CODE,
    "convert-trace": _TRACES,
    "deployment": _CLOUD,
    "do": "resources are managed by a program: write one, and use `up`",
    "env": _CLOUD,
    "gen-completion": "it writes completions for the Pulumi CLI",
    "import": "declare the resource with the option `import_` and run `up`, or use the Pulumi CLI",
    "insights": _CLOUD,
    "install": "install the packages of the project with pip, and plugins with the Pulumi CLI",
    "logs": "no provider served here knows logs; read them where the resource runs",
    "neo": _CLOUD,
    "new": _CODE,
    "org": _CLOUD,
    "package": _CODE,
    "plugin": "plugins are found on PATH and below PULUMI_HOME; install them with the Pulumi CLI",
    "policy": _POLICIES,
    "project": _CLOUD,
    "replay-events": "`up --event-log FILE` writes events, and nothing replays them",
    "schema": _CODE,
    "template": _CLOUD,
    "view-trace": _TRACES,
    "watch": "run `up` when a file changes",
}

BELOW: dict[str, dict[str, str]] = {
    "stack": {
        "drift": _CLOUD,
        "env": _CLOUD,
        "migrate": _CLOUD,
        "schedule": _CLOUD,
        "webhook": _CLOUD,
    },
    "config": {
        "edit": "open Pulumi.<stack>.yaml in an editor",
        "env": "environments belong to Pulumi Cloud; a file backend has none",
        "pin": _CLOUD,
        "restore": _CLOUD,
        "web": _CLOUD,
    },
    "state": {
        "edit": "use `stack export`, an editor, and `stack import`",
        "eject": _CLOUD,
        "get": "use `stack export`",
        "move": "use the Pulumi CLI, which moves between two stacks in one step",
        "promote": _CLOUD,
    },
}

FLAGS = {
    "--agent-pool-id": _CLOUD,
    "--attach-debugger": "a program runs without a terminal here: log from it, or use the Pulumi CLI",
    "--client": _AUTOMATION,
    "--copilot": _CLOUD,
    "--default-org": _CLOUD,
    "--disable-integrity-checking": "a state is always checked; `state repair` mends one",
    "--draft": _CLOUD,
    "--emoji": "this command writes no emoji",
    "--exec-agent": _AUTOMATION,
    "--exec-kind": _AUTOMATION,
    "--git-auth-access-token": _CLOUD,
    "--git-branch": _CLOUD,
    "--git-commit": _CLOUD,
    "--git-repo-dir": _CLOUD,
    "--ignore-protect": "run `state unprotect` first",
    "--import-file": "take the resources from `preview --json`, or use the Pulumi CLI",
    "--insecure": _CLOUD,
    "--interactive": _CLOUD,
    "--logflow": "plugins get no log settings; what they print is shown anyway",
    "--memprofilerate": _TRACES,
    "--neo": _CLOUD,
    "--otel-traces": _TRACES,
    "--output": "use --json for what programs read",
    "--override-env": _CLOUD,
    "--plan": _PLANS,
    "--policy-pack": _POLICIES,
    "--policy-pack-config": _POLICIES,
    "--pre-run-command": _CLOUD,
    "--profiling": _TRACES,
    "--remote": _CLOUD,
    "--remote-config": _CLOUD,
    "--save-plan": _PLANS,
    "--show-policy-remediations": _POLICIES,
    "--strict": _PLANS,
    "--suppress-stream-logs": _CLOUD,
    "--teams": _CLOUD,
    "--tracing": _TRACES,
    "--tracing-header": _TRACES,
    "-e": "this command writes no emoji",
}


def refuse_verb(verb: str, below: str | None = None) -> UserError | None:
    """The refusal of a verb (or of an action `below` one); None if Pulumi has none of that name."""
    reasons = VERBS if below is None else BELOW.get(verb, {})
    reason = reasons.get(verb if below is None else below)
    if reason is None:
        return None
    name = verb if below is None else f"{verb} {below}"
    return UserError(
        f"`{name}` is not part of the embedded engine: {reason}", ExitCode.CONFIGURATION
    )


def refuse_flag(flag: str) -> UserError | None:
    """The refusal of a flag; None if Pulumi has none of that name."""
    reason = FLAGS.get(flag)
    if reason is None:
        return None
    return UserError(f"{flag} is not part of the embedded engine: {reason}", ExitCode.CONFIGURATION)
