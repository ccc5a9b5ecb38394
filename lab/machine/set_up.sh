#!/bin/sh
# In the new file system, as root, before it is a disk. Usage: set_up.sh PUBLIC_KEY
set -eu
echo hgx-real >/etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 hgx-real\n' >/etc/hosts
echo '/dev/vda1 / ext4 defaults,errors=remount-ro 0 1' >/etc/fstab
printf '[Match]\nName=en*\n[Network]\nDHCP=yes\n' >/etc/systemd/network/90-lab.network
systemctl enable --quiet systemd-networkd

# As cloud images have it: an account that is let in by key and may become root.
useradd --create-home --gid operator --shell /bin/bash operator
install -d -m 700 -o operator -g operator /home/operator/.ssh
echo "$1" >/home/operator/.ssh/authorized_keys
chown operator:operator /home/operator/.ssh/authorized_keys
echo 'operator ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/operator
chmod 440 /etc/sudoers.d/operator
# All connections come from the one address of QEMU's network, and those given up during a boot arrive after it.
printf 'UseDNS no\nPasswordAuthentication no\nPerSourcePenalties no\n' >/etc/ssh/sshd_config.d/lab.conf

# nokaslr: at a random place the kernel may split the few GiB of a NUMA node, and no huge page of 1 GiB fits.
sed -i -e 's/^GRUB_TIMEOUT=.*/GRUB_TIMEOUT=0/' -e 's/^GRUB_CMDLINE_LINUX_DEFAULT=.*/GRUB_CMDLINE_LINUX_DEFAULT="quiet"/' \
    -e 's/^GRUB_CMDLINE_LINUX=.*/GRUB_CMDLINE_LINUX="console=ttyS0,115200n8 nokaslr panic=5"/' /etc/default/grub
echo 'GRUB_TERMINAL=serial' >>/etc/default/grub

# What this machine boots from; with the modules and programs of all machines an initramfs takes minutes here.
printf 'MODULES=list\nCOMPRESS=zstd\nCOMPRESSLEVEL=1\n' >/etc/initramfs-tools/conf.d/lab
for hook in dmsetup fsck fuse keymap resume thermal; do
    rm -f "/usr/share/initramfs-tools/hooks/$hook"
done
sed -i 's/ata_id scsi_id//' /usr/share/initramfs-tools/hooks/udev
printf 'virtio_pci\nvirtio_blk\next4\n' >>/etc/initramfs-tools/modules
update-initramfs -u

# No network to reach; what waits for one, or works in the background, costs minutes of an emulated processor.
systemctl mask --quiet apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    man-db.timer systemd-networkd-wait-online.service grub-common.service grub-initrd-fallback.service unattended-upgrades.service \
    systemd-networkd-persistent-storage.service systemd-pstore.service dev-mqueue.mount sys-kernel-config.mount \
    sys-kernel-debug.mount sys-kernel-tracing.mount modprobe@configfs.service modprobe@drm.service modprobe@efi_pstore.service \
    sys-fs-fuse-connections.mount modprobe@fuse.service systemd-binfmt.service systemd-random-seed.service \
    systemd-network-generator.service systemd-udev-load-credentials.service getty@tty1.service serial-getty@ttyS0.service
mkdir -p /etc/systemd/system-generators
for generator in bless-boot cryptsetup debug gpt-auto hibernate-resume integritysetup rc-local run ssh system-update sysv tpm2 veritysetup; do
    ln -s /dev/null "/etc/systemd/system-generators/systemd-$generator-generator"
done
systemctl set-default --quiet multi-user.target
systemctl disable --quiet docker.service docker.socket containerd.service libvirt-guests.service libvirtd.service virtlogd.service
systemctl enable --quiet libvirtd.socket libvirtd-ro.socket virtlogd.socket
mv /usr/local/sbin/lab-devices.service /etc/systemd/system/
systemctl enable --quiet lab-devices.service
chmod 755 /usr/local/sbin/*.sh /usr/local/sbin/virsh

# The processor says that it can virtualise; in QEMU 7.2 a guest that tries ends the machine (an assertion, CR8).
echo 'install kvm_amd /bin/false' >/etc/modprobe.d/lab.conf

# A small guest that boots with UEFI and says on its console what a service VM's own script does: GRUB itself.
cat >/srv/guest.cfg <<'END'
serial --unit=0 --speed=115200
terminal_output serial
echo "gpu-clusters: fabric-manager version=595.58.03 state=active"
exit
END
grub-mkstandalone --format=x86_64-efi --install-modules='normal serial terminal echo' \
    --modules='serial terminal echo' --output=/srv/guest.efi "boot/grub/grub.cfg=/srv/guest.cfg"
truncate -s 64M /srv/guest.img
mkfs.vfat /srv/guest.img >/dev/null
mmd -i /srv/guest.img ::EFI ::EFI/BOOT
mcopy -i /srv/guest.img /srv/guest.efi ::EFI/BOOT/BOOTX64.EFI
rm /srv/guest.efi /srv/guest.cfg
