#!/usr/bin/env bash
# Installs each package in a Debian that has no Rust, no compiler and no RDMA, and uses it there:
# all.sh PACKAGES BASE, a directory with the packages and the Debian as a tar archive. In namespaces of its
# own, as root or with sudo.
set -euo pipefail

packages=$(realpath "$1")
base=$(realpath "$2")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ((EUID != 0)); then
    exec sudo "$0" "$packages" "$base"
fi

# Runs a command below a root directory: its own processes, its own network, /proc and /dev/shm.
inside() {
    local root=$1
    shift
    # shellcheck disable=SC2016
    unshare --mount --pid --net --fork --kill-child bash -euc '
        root=$1; shift
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        ip link set lo up
        exec chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root \
            LANG=C.UTF-8 TERM=dumb "$@"
    ' inside "$root" "$@"
}

# What a package has to do, wherever it lies: the program's directory is the argument.
use() {
    local name=$1 root=$2 path=$3
    inside "$root" env PATH="$path:/usr/local/bin:/usr/bin:/bin" bash /tmp/use.sh "$begun"
    echo "$name: installed and used"
}

# A Debian of its own in `root`. What follows is timed.
root_of() {
    root=$work/$1
    mkdir "$root"
    tar -C "$root" -xf "$base"
    cp "$here/use.sh" "$here/test_verbs.py" "$root/tmp/"
    begun=$EPOCHREALTIME
}

root_of tarball
tar -C "$root/opt" -xzf "$packages"/ferroce-*-x86_64-linux.tar.gz
use tarball "$root" "/$(cd "$root" && echo opt/ferroce-*/bin)"

root_of deb
cp "$packages"/ferroce_*_amd64.deb "$root/tmp/ferroce.deb"
inside "$root" dpkg -i /tmp/ferroce.deb
use deb "$root" /usr/bin

root_of wheel
cp "$packages"/ferroce-*_x86_64.whl "$root/tmp/"
inside "$root" bash -euc 'python3 -m venv --system-site-packages /root/venv
    /root/venv/bin/pip install -q --no-index /tmp/ferroce-*.whl
    /root/venv/bin/python -m ferroce --version'
use wheel "$root" /root/venv/bin

mkdir "$work/layout"
tar -C "$work/layout" -xf "$packages"/ferroce-*-image.tar
tag=$(umoci ls --layout "$work/layout")
skopeo inspect "oci:$work/layout:$tag" >/dev/null
begun=$EPOCHREALTIME
umoci unpack --image "$work/layout:$tag" "$work/image" >/dev/null
cp "$here/use.sh" "$here/test_verbs.py" "$work/image/rootfs/tmp/"
use image "$work/image/rootfs" /usr/local/bin

"$here/containers.sh" "$packages"
