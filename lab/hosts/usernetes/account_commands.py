"""Stand-ins for `useradd`, `usermod`, `getsubids` (shadow) and `loginctl`.

Exit status after useradd(8) and usermod(8): 9 for a name that is taken, 6 for one that is not there;
getsubids(1): 1 where an account has no ranges; loginctl(1): 1 with a word of logind's.
"""

from __future__ import annotations

from lab.hosts import accounts
from lab.hosts.accounts import Account
from lab.hosts.call import Answer, Call
from lab.hosts.systemd import user_manager
from lab.hosts.usernetes import rootless
from lab.hosts.usernetes.rootless_faults import AccountOfDirectory, LingerRefused

_DENIED = 1


def useradd(call: Call) -> Answer:
    """`useradd [--create-home] [--shell SHELL] NAME`, `useradd --system [--gid GROUP] … NAME`."""
    names = _words(call, {"--shell", "-s", "--gid", "-g", "--comment", "-c", "--home-dir", "-d"})
    if len(names) != 1:
        return Answer.error("Usage: useradd [options] LOGIN", 2)
    if not call.is_root:
        return Answer.error("useradd: Permission denied.", _DENIED)
    if names[0] in accounts.accounts(call.machine):
        return Answer.error(f"useradd: user '{names[0]}' already exists", 9)
    if "--system" in call.arguments:
        words = list(call.arguments)
        group = words[words.index("--gid") + 1] if "--gid" in words else ""
        accounts.add_system(call.machine, names[0], group)
        return Answer()
    made = accounts.add(call.machine, names[0], many_users=_many_users(call))
    call.machine.note("account", added=made.name, uid=made.uid)
    return Answer()


def usermod(call: Call) -> Answer:
    """`usermod --add-subuids FIRST-LAST --add-subgids FIRST-LAST NAME`."""
    wanted: list[tuple[str, str]] = []
    names: list[str] = []
    rest = list(call.arguments)
    paths = {"--add-subuids": accounts.SUBUID, "--add-subgids": accounts.SUBGID}
    while rest:
        word = rest.pop(0)
        if word in paths and rest:
            wanted.append((paths[word], rest.pop(0)))
        elif word.startswith("-"):
            return Answer.error(f"usermod: only --add-subuids and --add-subgids here ({word})", 2)
        else:
            names.append(word)
    if not call.is_root:
        return Answer.error("usermod: Permission denied.", _DENIED)
    directory = call.faults.first(AccountOfDirectory)
    if len(names) != 1 or names[0] not in accounts.accounts(call.machine) or directory:
        shown = names[0] if names else ""
        return Answer.error(f"usermod: user '{shown}' does not exist in /etc/passwd", 6)
    for path, span in wanted:
        first, _, last = span.partition("-")
        accounts.add_range(call.machine, path, names[0], int(first), int(last) - int(first) + 1)
    call.machine.note("account", ranges=[span for _, span in wanted], account=names[0])
    return Answer()


def getsubids(call: Call) -> Answer:
    """`getsubids [-g] NAME`: `0: NAME 100000 65536`."""
    words = list(call.arguments)
    groups = "-g" in words
    names = [word for word in words if word != "-g"]
    path = accounts.SUBGID if groups else accounts.SUBUID
    account = accounts.accounts(call.machine).get(names[0]) if len(names) == 1 else None
    if account is None or not rootless.has_ids(call.machine, account, call.faults):
        return Answer.error("Error fetching ranges", 1)
    mine = [one for one in accounts.ranges(call.machine, path) if one[0] == account.name]
    lines = [f"{n}: {who} {first} {count}" for n, (who, first, count) in enumerate(mine)]
    return Answer.out("\n".join(lines))


def loginctl(call: Call) -> Answer:
    """`loginctl enable-linger|disable-linger|show-user NAME`."""
    words = _words(call, {"-p", "--property"})
    verb, names = (words[0], words[1:]) if words else ("", [])
    known = accounts.accounts(call.machine)
    if verb not in {"enable-linger", "disable-linger", "show-user"} or len(names) != 1:
        return Answer.error(f"Unknown command verb '{verb}'.", 1)
    account = known.get(names[0])
    if account is None:
        return Answer.error(f"Failed to look up user {names[0]}: No such process", 1)
    if verb == "show-user":
        if not accounts.is_up(call.machine, account):
            text = f"User ID {account.uid} is not logged in or lingering"
            return Answer.error(f"Failed to get user: {text}", 1)
        return Answer.out("yes" if user_manager.lingers(call.machine, account) else "no")
    return _linger(call, account, on=verb == "enable-linger")


def _linger(call: Call, account: Account, *, on: bool) -> Answer:
    verb = "enable" if on else "disable"
    if not call.is_root or call.faults.first(LingerRefused):
        return Answer.error(f"Could not {verb} linger: Access denied", 1)
    if on:
        user_manager.allow_linger(call.machine, account)
    else:
        call.machine.path(f"{user_manager.LINGER}/{account.name}").unlink(missing_ok=True)
        user_manager.stop(call.machine, account)
    call.machine.note("account", linger=on, account=account.name)
    return Answer()


def _words(call: Call, with_value: set[str]) -> list[str]:
    words: list[str] = []
    rest = list(call.arguments)
    while rest:
        word = rest.pop(0)
        if word in with_value and rest:
            rest.pop(0)
        elif not word.startswith("-"):
            words.append(word)
    return words


def _many_users(call: Call) -> bool:
    return call.uid != 0 or bool(getattr(call.host, "many_users", False))
