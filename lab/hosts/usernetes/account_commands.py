"""Stand-ins for `useradd`, `usermod`, `getsubids` (shadow) and `loginctl`.

Exit status after useradd(8) and usermod(8): 9 for a name that is taken, 6 for one that is not there;
getsubids(1): 1 where an account has no ranges; loginctl(1): 1 with a word of logind's.
"""

from lab.hosts import accounts
from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import AccountOfDirectory, LingerRefused
from lab.hosts.program import program
from lab.hosts.systemd import user_manager
from lab.hosts.usernetes import rootless


@program(
    "useradd",
    flags="--create-home --system --no-create-home",
    values="--shell --gid --comment",
    root="useradd: Permission denied.",
)
def useradd(call: Call) -> Answer:
    """`useradd [--create-home] [--shell SHELL] NAME`, `useradd --system [--gid GROUP] … NAME`."""
    if len(call.words) != 1:
        raise RefusedError("Usage: useradd [options] LOGIN", 2)
    if call.verb in accounts.accounts(call.machine):
        raise RefusedError(f"useradd: user '{call.verb}' already exists", 9)
    if call.has("--system"):
        accounts.add_system(call.machine, call.verb, call.value("--gid") or "")
        return Answer()
    made = accounts.add(call.machine, call.verb, many_users=call.has_many_users)
    call.machine.note("account", added=made.name, uid=made.uid)
    return Answer()


@program("usermod", values="--add-subuids --add-subgids", root="usermod: Permission denied.")
def usermod(call: Call) -> Answer:
    """`usermod --add-subuids FIRST-LAST --add-subgids FIRST-LAST NAME`."""
    known = accounts.accounts(call.machine)
    if call.verb not in known or call.faults.first(AccountOfDirectory):
        raise RefusedError(f"usermod: user '{call.verb}' does not exist in /etc/passwd", 6)
    paths = {"--add-subuids": accounts.SUBUID, "--add-subgids": accounts.SUBGID}
    wanted = [(paths[name], one) for name, spans in call.given.values.items() for one in spans]
    for path, span in wanted:
        first, last = map(int, span.split("-"))
        accounts.add_range(call.machine, path, call.verb, first, last - first + 1)
    call.machine.note("account", ranges=[span for _, span in wanted], account=call.verb)
    return Answer()


@program("getsubids", of="uidmap", flags="-g")
def getsubids(call: Call) -> Answer:
    """`getsubids [-g] NAME`: `0: NAME 100000 65536`."""
    account = accounts.accounts(call.machine).get(call.verb)
    if account is None or not rootless.has_ids(call.machine, account, call.faults):
        raise RefusedError("Error fetching ranges")
    path = accounts.SUBGID if call.has("-g") else accounts.SUBUID
    mine = [one for one in accounts.ranges(call.machine, path) if one[0] == account.name]
    lines = [f"{n}: {who} {first} {count}" for n, (who, first, count) in enumerate(mine)]
    return Answer.out("\n".join(lines))


@program("loginctl", flags="--value", values="-p")
def loginctl(call: Call) -> Answer:
    """`loginctl enable-linger|disable-linger NAME`, `show-user NAME -p Linger --value`."""
    machine, verb, name = call.machine, call.verb, "".join(call.words[1:])
    if verb not in {"enable-linger", "disable-linger", "show-user"}:
        raise RefusedError(f"Unknown command verb '{verb}'.")
    account = accounts.accounts(machine).get(name)
    if account is None:
        raise RefusedError(f"Failed to look up user {name}: No such process")
    if verb == "show-user":
        if not accounts.is_up(machine, account):
            text = f"User ID {account.uid} is not logged in or lingering"
            raise RefusedError(f"Failed to get user: {text}")
        return Answer.out("yes" if user_manager.lingers(machine, account) else "no")
    if not call.is_root or call.faults.first(LingerRefused):
        raise RefusedError(f"Could not {verb.replace('-', ' ')}: Access denied")
    on = verb == "enable-linger"
    if on:
        user_manager.allow_linger(machine, account)
    else:
        machine.path(f"{user_manager.LINGER}/{account.name}").unlink(missing_ok=True)
        user_manager.stop(machine, account)
    machine.note("account", linger=on, account=account.name)
    return Answer()
