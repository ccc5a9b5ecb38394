#!/bin/sh
# The files of a package that says its version where NVIDIA's driver does; loading it takes no device.
# Usage: sh -s -- VERSION KERNEL GPUS
set -eu
version=$1 kernel=$2 gpus=$3
modules=/tmp/package/lib/modules/$kernel/updates/dkms
mkdir -p /tmp/package/DEBIAN /tmp/package/usr/bin /tmp/package/etc/modprobe.d "$modules"
cd /tmp/package
echo 'install nvidia /usr/bin/nvidia-load' >etc/modprobe.d/lab-nvidia.conf
cat >usr/bin/nvidia-load <<END
#!/bin/sh
mountpoint -q /proc/driver || mount -t tmpfs none /proc/driver
mkdir -p /proc/driver/nvidia
echo 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  $version  Release Build' \
    >/proc/driver/nvidia/version
END
cat >usr/bin/nvidia-smi <<END
#!/bin/sh
[ -e /proc/driver/nvidia/version ] || exit 9
case \$1 in *=name) yes 'NVIDIA H100 80GB HBM3' | head -n $gpus ;; esac
END
printf '#!/bin/sh\ndepmod -a %s\n' "$kernel" >DEBIAN/postinst
chmod 755 usr/bin/* DEBIAN/postinst
# A module's file, as long as before: its description becomes a version.
xz -dc "/lib/modules/$kernel/kernel/drivers/net/dummy.ko.xz" |
    V=$version perl -0777 -pe 's/description=[^\0]+/substr("version=$ENV{V}\0note=" . "x" x 99, 0, length $&)/e' \
        >"$modules/nvidia.ko"
