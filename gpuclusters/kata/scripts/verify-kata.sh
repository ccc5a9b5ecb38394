#!/bin/sh
# Looks whether Kata is on this machine as the cluster declares it. Reads only, so that it can be run at any time.
# With --wait SECONDS first: how long to wait for the installer, which on a machine that has just joined, or was
# installed anew, may still be at work.
# Arguments, in this order:
#   HANDLER           what the RuntimeClass calls the shim, for example kata-qemu-nvidia-gpu
#   PREFIX            where Kata is installed, for example /opt/kata
#   CONFIGURATION     the shim's configuration file
#   DROP_IN_SHA256    checksum of our drop-in beside it
#   GUEST_DRIVER      version of the NVIDIA driver in the guest image, or - if it is not Kata's own image
#   IMAGE_SHA256      checksum of the guest image, or - if only its dm-verity root hash is asked for
#   CONTAINERD_FILE.. files or folders in which the handler may be told to containerd
# Prints one line for each finding and ends with 1 if there is any; else what it found.
set -eu

wait=0
if [ "${1:-}" = --wait ]; then
  wait=$2
  shift 2
fi
[ $# -ge 7 ] || { echo "usage: verify-kata.sh [--wait SECONDS] HANDLER PREFIX CONFIGURATION DROP_IN_SHA256 GUEST_DRIVER IMAGE_SHA256 CONTAINERD_FILE..." >&2; exit 64; }

handler=$1 prefix=$2 configuration=$3 drop_in_sha256=$4 guest_driver=$5 image_sha256=$6
shift 6
found=0

finding() {
  echo "error: $1; $2" >&2
  found=1
}

checksum() {
  sha256sum "$1" | cut -d ' ' -f 1
}

# value KEY: what the shim's configuration says for the key, without quotes; the first one counts.
value() {
  sed -n "s/^ *$1 *= *\"\(.*\)\" *$/\1/p" "$configuration" | head -n 1
}

is_told() {
  grep -rqsF "containerd.runtimes.$handler]" "$@"
}

while [ "$wait" -gt 0 ] && ! { is_told "$@" && [ -r "$configuration" ]; }; do
  sleep 2
  wait=$((wait - 2))
done

if ! is_told "$@"; then
  finding "containerd is not told of the handler $handler in $*" \
    "see the log of the pod kata-deploy on this node; with RKE2 and K3s containerd's template must import its drop-ins"
fi

if [ ! -r "$configuration" ]; then
  finding "$configuration is not there" "kata-deploy has not installed the shim; see the log of its pod on this node"
  exit 1
fi

drop_in="$(dirname "$configuration")/config.d/50-user-overrides.toml"
if [ ! -r "$drop_in" ]; then
  finding "$drop_in is not there, so that VMs boot with Kata's own timeouts" "restart the pod kata-deploy on this node"
elif [ "$(checksum "$drop_in")" != "$drop_in_sha256" ]; then
  finding "$drop_in is not as declared" "somebody changed it, or the pod kata-deploy has not been rolled; restart it"
fi

image=$(value image)
if [ -z "$image" ] || [ ! -r "$image" ]; then
  finding "the guest image ${image:-(none is configured)} is not there" "restart the pod kata-deploy on this node"
elif [ "$image_sha256" != - ] && [ "$(checksum "$image")" != "$image_sha256" ]; then
  finding "the guest image $image has the checksum $(checksum "$image")" \
    "put back the image of the release, or write its checksum as kata.guest-image-sha256"
fi
if [ "$image_sha256" = - ] && [ -z "$(value kernel_verity_params)" ]; then
  finding "$configuration has no kernel_verity_params, so that nothing verifies the guest image" \
    "use an image with dm-verity, or write its checksum as kata.guest-image-sha256"
fi

if [ "$guest_driver" != - ]; then
  driver=$(sed -n '/^ *driver:/,/version:/s/^ *version: *"\{0,1\}\([0-9.]*\)"\{0,1\} *$/\1/p' "$prefix/versions.yaml" 2>/dev/null | head -n 1)
  if [ "$driver" != "$guest_driver" ]; then
    finding "the guest image has the driver ${driver:-(unknown)}, while the fabric manager is of $guest_driver" \
      "install the release of Kata that versions.kata names, or set versions.guest-driver and versions.fabric-manager"
  fi
fi

[ "$found" = 0 ] || exit 1
echo "$handler: guest image $image"
