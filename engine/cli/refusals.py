"""What Pulumi's CLI has and this one has not: by name, with the reason and what to do instead.

A flag or a verb is either carried out or in one of these tables; none is accepted and ignored.
"""

from __future__ import annotations

from engine.usererror import ExitCode, UserError

_CLOUD = "it belongs to Pulumi Cloud; a file backend has none"
_PLANS = "update plans, which Pulumi itself calls experimental: compare `preview --json` instead"
_POLICIES = "policy packs run in the Pulumi CLI only: use it, or test the rules as plain Python"
_AUTOMATION = "it is for Pulumi's Automation API, which needs the Pulumi CLI"
_TRACES = "there are no traces and no log: `--json` writes what happens and when"
_STATE = "use `stack export`, an editor, and `stack import`"
_STACK_FILE = "use `config set` and `config rm` for each value, or edit Pulumi.<stack>.yaml"
_WHOLE = "it is left out here; use `stack export`, which shows the whole state"
_EXPORT = "use `stack export --show-secrets`"
_PENDING = "use `--clear-pending-creates`, or leave them: nobody is asked"
_BACKEND = "set PULUMI_BACKEND_URL=file://FOLDER"
_MADE_ONCE = "use the Pulumi CLI on the same state"
_CODE = "it generates or installs code: use the Pulumi CLI"

VERBS = {
    "about": "use `version`, and `gpu-clusters doctor`",
    "ai": _CLOUD,
    "api": _CLOUD,
    "console": _CLOUD,
    "convert": _CODE,
    "convert-trace": _TRACES,
    "deployment": _CLOUD,
    "do": "resources are managed by a program: write one, and use `up`",
    "env": _CLOUD,
    "gen-completion": "it writes completions for the Pulumi CLI",
    "import": "use the Pulumi CLI, or the input `adopt` of a dynamic resource",
    "insights": _CLOUD,
    "install": "install the packages of the project with pip, and plugins with the Pulumi CLI",
    "login": _BACKEND,
    "logout": _BACKEND,
    "logs": "no provider served here knows logs; read them where the resource runs",
    "neo": _CLOUD,
    "new": _CODE,
    "org": _CLOUD,
    "package": _CODE,
    "plugin": "plugins are found on PATH and below PULUMI_HOME; install them with the Pulumi CLI",
    "policy": _POLICIES,
    "project": _CLOUD,
    "replay-events": "`up --json` writes events, and nothing replays them",
    "schema": _CODE,
    "template": _CLOUD,
    "view-trace": _TRACES,
    "watch": "run `up` when a file changes",
    "whoami": "a file backend knows no users",
}

BELOW: dict[str, dict[str, str]] = {
    "stack": {
        "change-secrets-provider": _MADE_ONCE,
        "drift": _CLOUD,
        "env": _CLOUD,
        "graph": "use `gpu-clusters draw`",
        "migrate": _CLOUD,
        "rename": _MADE_ONCE,
        "schedule": _CLOUD,
        "tag": "a stack has no tags here",
        "unselect": "pass --stack, or select another one",
        "webhook": _CLOUD,
    },
    "config": {
        "cp": _STACK_FILE,
        "edit": "open Pulumi.<stack>.yaml in an editor",
        "env": "environments belong to Pulumi Cloud; a file backend has none",
        "pin": _CLOUD,
        "refresh": _STACK_FILE,
        "restore": _CLOUD,
        "rm-all": _STACK_FILE,
        "set-all": _STACK_FILE,
        "web": _CLOUD,
    },
    "state": {
        "edit": _STATE,
        "eject": _CLOUD,
        "get": "use `stack export`",
        "move": "use the Pulumi CLI, which moves between two stacks in one step",
        "promote": _CLOUD,
        "protect": "declare `protect=True` in the program",
        "rename": f"{_STATE}, or an alias in the program",
        "repair": _STATE,
        "taint": "use `up --replace URN`",
        "untaint": _STATE,
        "upgrade": "the backend has the newest layout, or is refused",
    },
}

FLAGS = {
    "--agent-pool-id": _CLOUD,
    "--attach-debugger": "a program runs without a terminal here: log from it, or use the Pulumi CLI",
    "--client": _AUTOMATION,
    "--config": "use `config set` first",
    "--config-path": "edit Pulumi.<stack>.yaml first",
    "--copy-config-from": _STACK_FILE,
    "--copilot": _CLOUD,
    "--default-org": _CLOUD,
    "--disable-integrity-checking": f"a state is always checked; to mend one, {_STATE}",
    "--draft": _CLOUD,
    "--emoji": "this command writes no emoji",
    "--event-log": "use `--json`, which writes each event as a line",
    "--exclude-dependents": "name what depends on it with `--exclude` too",
    "--exclude-protected": "name what is to stay with `--exclude`",
    "--exec-agent": _AUTOMATION,
    "--exec-kind": _AUTOMATION,
    "--full-dates": "`stack history` always writes them in full",
    "--fully-qualify-stack-names": "stacks of other projects are always named in full",
    "--git-auth-access-token": _CLOUD,
    "--git-branch": _CLOUD,
    "--git-commit": _CLOUD,
    "--git-repo-dir": _CLOUD,
    "--ignore-protect": "run `state unprotect` first",
    "--import-pending-creates": f"Pulumi's own engine imports nothing by it: {_PENDING}",
    "--import-file": "take the resources from `preview --json`, or use the Pulumi CLI",
    "--insecure": _CLOUD,
    "--interactive": _CLOUD,
    "--logflow": _TRACES,
    "--logtostderr": _TRACES,
    "--memprofilerate": _TRACES,
    "--neo": _CLOUD,
    "--otel-traces": _TRACES,
    "--output": "use --json for what programs read",
    "--override-env": _CLOUD,
    "--page": "`stack history` writes all; `--page-size N` the newest",
    "--path": "edit Pulumi.<stack>.yaml, or set the whole value",
    "--plan": _PLANS,
    "--policy-pack": _POLICIES,
    "--policy-pack-config": _POLICIES,
    "--pre-run-command": _CLOUD,
    "--profiling": _TRACES,
    "--remote": _CLOUD,
    "--remote-config": _CLOUD,
    "--run-program": "run `up` first, which renews what providers are given",
    "--save-plan": _PLANS,
    "--shell": "use `stack output --json`",
    "--show-config": "use `config`, which shows it",
    "--show-full-output": _WHOLE,
    "--show-ids": "use `stack export`",
    "--show-name": "use `stack ls`, which marks the selected one",
    "--show-policy-remediations": _POLICIES,
    "--show-reads": "no resources are only read here",
    "--skip-config-validation": "mend the configuration, or its declaration in Pulumi.yaml",
    "--skip-pending-creates": _PENDING,
    "--show-urns": "use `stack export`",
    "--strict": _PLANS,
    "--suppress-outputs": "use `--json`, and leave out what is not wanted",
    "--suppress-permalink": "a file backend has no links",
    "--suppress-progress": "there is no progress view to suppress",
    "--suppress-stream-logs": _CLOUD,
    "--tag": "a stack has no tags here",
    "--teams": _CLOUD,
    "--tracing": _TRACES,
    "--tracing-header": _TRACES,
    "--verbose": _TRACES,
    "--version": "a file backend exports no earlier versions; they lie in .pulumi/history as files",
    "-v": _TRACES,
    "-Q": "stacks of other projects are always named in full",
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


# What these commands alone have not.
_SET_FIRST = {"-c": "use `config set` first"}
FLAGS_OF = {
    "preview": {"--show-secrets": _EXPORT, **_SET_FIRST},
    "up": {"--show-secrets": _EXPORT, **_SET_FIRST},
    "refresh": _SET_FIRST,
    "destroy": _SET_FIRST,
}


def refuse_flag(flag: str, command: str = "") -> UserError | None:
    """The refusal of a flag; None if Pulumi has none of that name."""
    reason = FLAGS_OF.get(command, {}).get(flag) or FLAGS.get(flag)
    if reason is None:
        return None
    return UserError(f"{flag} is not part of the embedded engine: {reason}", ExitCode.CONFIGURATION)
