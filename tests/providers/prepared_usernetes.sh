# shellcheck shell=sh
# What the preparation of hosts for Usernetes leaves, in the fewest steps; it has tests of its own.
set -e
mkdir -p /etc/apt/sources.list.d /etc/cdi
printf 'deb https://%s /\n' download.docker.com/linux/ubuntu nvidia.github.io/libnvidia-container \
    >/etc/apt/sources.list.d/test.list
apt-get update
apt-get install -y docker-ce docker-ce-cli docker-ce-rootless-extras uidmap slirp4netns \
    dbus-user-session make nvidia-container-toolkit
systemctl disable --now docker.service
usermod --add-subuids 100000-165535 --add-subgids 100000-165535 operator
loginctl enable-linger operator
nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
