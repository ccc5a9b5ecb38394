#!/bin/sh
# Install the packages that a GPU host needs, by apt or dnf. Names are Debian's; the RHEL family's are known.
# What is installed already, in the wanted version or any, is left alone: nothing is upgraded by the way.
# Usage: sh -s -- NAME[=VERSION]...
set -eu
LC_ALL=C
export LC_ALL DEBIAN_FRONTEND=noninteractive

family() {
    words=$(sed -n -e 's/^ID=//p' -e 's/^ID_LIKE=//p' /etc/os-release | tr -d '"' | tr '\n' ' ')
    case " $words " in
    *" debian "* | *" ubuntu "*) echo debian ;;
    *" rhel "* | *" fedora "* | *" centos "*) echo red-hat ;;
    *)
        echo "error: this operating system ($words) is neither of the Debian nor of the RHEL family" >&2
        exit 64
        ;;
    esac
}

name_of() {
    case $1 in
    qemu-system-x86) echo qemu-kvm ;;
    qemu-utils) echo qemu-img ;;
    libvirt-daemon-system) echo libvirt-daemon-kvm ;;
    libvirt-clients) echo libvirt-client ;;
    ovmf) echo edk2-ovmf ;;
    genisoimage) echo xorriso ;;
    *) echo "$1" ;;
    esac
}

installed() {
    if [ "$system" = debian ]; then
        # shellcheck disable=SC2016 # a format of dpkg-query, not of the shell
        words=$(dpkg-query --show --showformat='${db:Status-Status} ${Version}' "$1" 2>/dev/null || true)
        case $words in "installed "*) printf '%s' "${words#installed }" ;; esac
    else
        rpm -q --qf '%{VERSION}-%{RELEASE}' "$1" 2>/dev/null || true
    fi
}

system=$(family)
missing=""
for wanted; do
    name=${wanted%%=*}
    version=""
    [ "$name" = "$wanted" ] || version=${wanted#*=}
    [ "$system" = debian ] || name=$(name_of "$name")
    has=$(installed "$name")
    case $has in *"not installed"*) has="" ;; esac
    if [ -n "$has" ] && { [ -z "$version" ] || [ "$has" = "$version" ]; }; then
        echo "$name $has is installed"
        continue
    fi
    if [ "$system" = debian ]; then
        missing="$missing $name${version:+=$version}"
    else
        missing="$missing $name${version:+-$version}"
    fi
done
if [ -z "$missing" ]; then
    exit 0
fi
# The lists are renewed and the lock is waited for: at boot unattended-upgrades holds it for minutes.
# shellcheck disable=SC2086 # names without blanks
if [ "$system" = debian ]; then
    # An installation that was cut off: apt refuses everything until dpkg has finished it.
    if [ -n "$(dpkg --audit)" ] || [ -n "$(find /var/lib/dpkg/updates -type f 2>/dev/null)" ]; then
        dpkg --configure -a >&2 </dev/null
    fi
    apt-get -o DPkg::Lock::Timeout=300 -qq update >&2
    apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends --allow-downgrades $missing
else
    dnf install -y --setopt=install_weak_deps=False $missing
fi
