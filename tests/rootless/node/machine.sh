#!/bin/sh
# A machine of its own within this one: the same files with layers laid over them, its own /dev, /run, /tmp and
# processes. Started by `unshare --mount --pid --fork`, as root. It lasts until standard input ends; then every
# process and mount of it is gone. Nothing it writes reaches the machine underneath, but into what is bound.
# Usage: machine.sh LAYER... [-- SOURCE TARGET...]
#        LAYER: folder whose files lie over those of the machine
#        SOURCE: file or folder of the machine underneath that is TARGET here
set -eu
place=/mnt
root=$place/root

mount -t tmpfs -o mode=0755 private-machine $place
mkdir $place/upper $place/work $root
# Copied, because layers must not lie within each other; with owners and set-user-id bits.
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    cp -a "$1/." $place/upper/
    shift
done
[ $# -eq 0 ] || shift
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
# Nothing is fetched here: without lists apt-mark does not read through all of Debian.
[ ! -d $root/var/lib/apt/lists ] || mount -t tmpfs lists $root/var/lib/apt/lists
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
while [ $# -gt 1 ]; do
    if [ -d "$1" ]; then
        mkdir -p "$root$2"
    else
        mkdir -p "$root${2%/*}"
        [ -e "$root$2" ] || : >"$root$2"
    fi
    mount --bind "$1" "$root$2"
    shift 2
done

# Not chroot: the kernel makes no user namespaces for a process that lives in one.
cd $root
mkdir tmp/old
pivot_root . tmp/old
cd /
umount -l /tmp/old
rmdir /tmp/old
echo ready
exec cat
