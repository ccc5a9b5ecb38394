# shellcheck shell=bash
# Kills the shell before its command number KILL_AT that changes something, counted over all of its subshells.
# What only reads, or only changes the shell itself, does not count; written into a file it counts all the same.
# Functions of the scripts are looked at inside.
shopt -s extglob
rm -f /tmp/commands
before_each() {
    case $BASH_COMMAND in
        *'>"$'* | *'> "$'*) ;;
        '[ '*|'[[ '*|'test '*|'case '*|': '*|:*|'set '*|'trap '*|'local '*|'export '*|return*|exit*|\
        'echo '*|'printf '*|'read '*|'umask '*|shift*|'command '*) return 0 ;;
        'sed '*|'head '*|'cut '*|'grep '*|'tr '*|'stat '*|'sha256sum '*|'readlink '*|'cat '*|'dirname '*|\
        'basename '*|'base64 -d'*|'sleep '*|'sync '*|'virsh dom'*|'virsh net-info'*|'virsh net-uuid'*|\
        'virsh uri'*|'qemu-img info'*|'qemu-img check'*|'systemctl show'*|'systemctl is-'*|'modprobe '*|\
        'fuser '*) return 0 ;;
        'name_of '*|'value_of '*|'users_of '*|'nodes_of '*|is_it*|'wait_for_driver '*|'complain '*|\
        'word '*|'failed '*|'key '*|vendor_data*|'make_iso '*|main*|'verify '*|remember*|bind_one*|\
        release_one*|inspect_one*|state*) return 0 ;;
        [a-zA-Z_]*([a-zA-Z0-9_])=*) return 0 ;;
    esac
    printf . >>/tmp/commands
    IFS= read -r counted </tmp/commands || true
    if [ "${#counted}" -ge "$KILL_AT" ]; then
        kill -9 $$ $BASHPID
    fi
}
set -o functrace
trap before_each DEBUG
