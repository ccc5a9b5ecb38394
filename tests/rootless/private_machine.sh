#!/bin/sh
# A machine of its own within this one: the same files with a layer laid over them, its own /dev, /run, /tmp and
# processes. Started by `unshare --mount --pid --fork`, as root. It lasts until standard input ends; then every
# process and mount of it is gone. Nothing it writes reaches the machine underneath.
# Usage: private_machine.sh LAYER...      LAYER: folder whose files lie over those of the machine
set -eu
place=/mnt
root=$place/root

mount -t tmpfs -o mode=0755 private-machine $place
mkdir $place/upper $place/work $root
# Copied, because layers must not lie within each other; with owners and set-user-id bits.
for layer; do
    cp -a "$layer/." $place/upper/
done
# Packages may still say /bin where that is a link to /usr/bin, which a folder would hide.
for folder in bin sbin lib lib64; do
    if [ -d $place/upper/$folder ] && [ -L /$folder ]; then
        mkdir -p $place/upper/usr/$folder
        cp -a $place/upper/$folder/. $place/upper/usr/$folder/
        rm -rf "${place:?}/upper/$folder"
    fi
done
chown 0:0 $place/upper
chmod 0755 $place/upper
mount -t overlay -o lowerdir=/,upperdir=$place/upper,workdir=$place/work overlay $root

mount -t proc proc $root/proc
mount --rbind /sys $root/sys
mount -t tmpfs -o mode=0755 run $root/run
mount -t tmpfs -o mode=1777 tmp $root/tmp
mount -t tmpfs -o mode=0755 dev $root/dev
mkdir $root/dev/net $root/dev/pts $root/dev/shm
chmod 1777 $root/dev/shm
while read -r name major minor; do
    mknod -m 0666 "$root/dev/$name" c "$major" "$minor"
done <<'NODES'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
net/tun 10 200
NODES
mount -t devpts -o newinstance,ptmxmode=0666 devpts $root/dev/pts
ln -s pts/ptmx $root/dev/ptmx
ln -s /proc/self/fd $root/dev/fd

# Not chroot: the kernel makes no user namespaces for a process that lives in one.
cd $root
mkdir tmp/old
pivot_root . tmp/old
cd /
umount -l /tmp/old
rmdir /tmp/old
echo ready
exec cat
