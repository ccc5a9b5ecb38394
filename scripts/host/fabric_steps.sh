#!/bin/sh
# Deactivate and activate NVSwitch partitions, in the order given, then print the table: a whole
# change of layout in one go. Steps:
#   d:NUMBER:ADDRESS,ADDRESS   deactivate, if no process has one of these GPUs at that moment
#   a:NUMBER                   activate
# Prints "done STEP" for each step that is done, and for the first that is not
#   "failed STEP STATUS" with fmpm's exit status and its words, each line after "said "
#   "held STEP PID,PID" for GPUs in use
# and ends there. After the last step: "table", and what `fmpm -l` prints. 239 (activate) and 238
# (deactivate) say that it is so already.
# Sent after vfio_users.sh.
# Usage: sh -s -- FABRIC_MANAGER_HOST STEP...
# Exit: 3 fmpm is not installed, 5 open files cannot be asked for.
set -eu
LC_ALL=C
export LC_ALL
manager=$1
shift

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

for word; do
    number=${word#?:}
    case $word in
    d:*)
        require_fuser
        addresses=${number#*:}
        number=${number%%:*}
        # shellcheck disable=SC2046 # addresses, separated by commas
        users_of $(printf '%s' "$addresses" | tr ',' ' ')
        if [ -n "$held" ]; then
            printf 'held %s %s\n' "d:$number" "$held"
            exit 0
        fi
        step -d "$number" 238 "d:$number"
        ;;
    a:*)
        step -a "$number" 239 "a:$number"
        ;;
    *)
        echo "usage: fabric_steps.sh FABRIC_MANAGER_HOST d:NUMBER:ADDRESSES|a:NUMBER..." >&2
        exit 64
        ;;
    esac
done
echo table
status=0
fmpm -l --hostname "$manager" </dev/null || status=$?
if [ "$status" -ne 0 ]; then
    printf '\nfailed l: %s\n' "$status"
fi
