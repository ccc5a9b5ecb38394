#!/bin/sh
# Deactivate and activate NVSwitch partitions, in the order given, then print the table: a whole
# change of layout in one go. Steps:
#   d:NUMBER:ADDRESS,ADDRESS   deactivate, if no process and no lease has one of these GPUs
#   a:NUMBER[:ADDRESS,ADDRESS] activate, unless the leases keep one of these GPUs' partitions down
# Prints "done STEP" for each step that is done, and for the first that is not
#   "failed STEP STATUS" with fmpm's exit status and its words, each line after "said "
#   "held STEP PID,PID" for GPUs in use
#   "leased STEP ADDRESS" for a GPU that a lease has marked as its own, whose VM may be about to start
#   "locked" when somebody else changes partitions of this machine for longer than 20 s
# and ends there. All that has to go is looked at before the first step, and again at each. A step that
# is left to the leases is "left STEP ADDRESS", and the next one comes. After the last step:
# "withheld ADDRESS" for each GPU whose partitions the leases keep down, "quarantined ADDRESS" for those
# in quarantine, then "table", and what `fmpm -l` prints. 239 (activate) and 238 (deactivate) say that it
# is so already. Without steps: only that, at a moment at which nobody changes partitions.
# Sent after vfio_users.sh.
# Usage: sh -s -- FABRIC_MANAGER_HOST [STEP...]
# Exit: 3 fmpm is not installed, 5 open files cannot be asked for.
set -eu
LC_ALL=C
export LC_ALL
manager=$1
shift
# Held by whoever changes partitions of this machine, and the marks of leases: a lease marks its GPUs
# first and then waits for the lock, so that of the two at least one sees the other.
lock=/run/lock/gpu-clusters-fabric
marks=/run/gpu-clusters-leases
# The leases set these before a partition goes down and take them away when it is up again.
withheld=/var/lib/gpu-clusters/withheld

command -v fmpm >/dev/null 2>&1 || {
    echo "fmpm is not installed" >&2
    exit 3
}

# fmpm FLAG NUMBER ALREADY STEP
step() {
    status=0
    words=$(fmpm "$1" "$2" --hostname "$manager" 2>&1 </dev/null) || status=$?
    if [ "$status" -eq 0 ] || [ "$status" -eq "$3" ]; then
        printf 'done %s\n' "$4"
        return 0
    fi
    printf 'failed %s %s\n' "$4" "$status"
    printf '%s\n' "$words" | sed -e '/^ *$/d' -e 's/^/said /'
    exit 0
}

# Ends the script if a process or a lease has one of the GPUs of "d:NUMBER:ADDRESS,ADDRESS".
require_unused() {
    addresses=${1#d:*:}
    name=${1%":$addresses"}
    addresses=$(printf '%s' "$addresses" | tr ',' ' ')
    for address in $addresses; do
        if [ -e "$marks/$address" ]; then
            printf 'leased %s %s\n' "$name" "$address"
            exit 0
        fi
    done
    # shellcheck disable=SC2086 # addresses, separated by blanks
    users_of $addresses
    if [ -n "$held" ]; then
        printf 'held %s %s\n' "$name" "$held"
        exit 0
    fi
}

# Prints "left STEP ADDRESS" and fails if the leases keep a GPU of "a:NUMBER:ADDRESS,ADDRESS" back.
require_given_back() {
    addresses=${1#a:*:}
    for address in $(printf '%s' "$addresses" | tr ',' ' '); do
        if [ -e "$withheld/$address" ]; then
            printf 'left a:%s %s\n' "$2" "$address"
            return 1
        fi
    done
}

mkdir -p "${lock%/*}"
exec 9>"$lock"
flock --timeout 20 9 || {
    echo locked
    exit 0
}
for word; do
    case $word in
    d:*)
        require_fuser
        require_unused "$word"
        ;;
    esac
done
for word; do
    number=${word#?:}
    case $word in
    d:*)
        require_unused "$word"
        number=${number%%:*}
        step -d "$number" 238 "d:$number"
        ;;
    a:*)
        number=${number%%:*}
        if require_given_back "$word" "$number"; then
            step -a "$number" 239 "a:$number"
        fi
        ;;
    *)
        echo "usage: fabric_steps.sh FABRIC_MANAGER_HOST d:NUMBER:ADDRESSES|a:NUMBER[:ADDRESSES]..." >&2
        exit 64
        ;;
    esac
done
for mark in "$withheld"/*; do
    if [ -e "$mark/quarantined" ]; then
        printf 'quarantined %s\n' "${mark##*/}"
    elif [ -e "$mark" ]; then
        printf 'withheld %s\n' "${mark##*/}"
    fi
done
echo table
status=0
fmpm -l --hostname "$manager" </dev/null || status=$?
if [ "$status" -ne 0 ]; then
    printf '\nfailed l: %s\n' "$status"
fi
