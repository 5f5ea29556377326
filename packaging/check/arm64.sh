#!/usr/bin/env bash
# Tries the tarball for 64-bit Arm under qemu-user: arm64.sh PACKAGES ROOT, a directory with the packages
# and an unpacked Debian for arm64. Programs that qemu runs cannot start others of that machine, so
# the programs get Ferroce's libraries from `ferroce env`.
set -euo pipefail

packages=$(realpath "$1")
root=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
tar -xzf "$packages"/ferroce-*-aarch64-linux.tar.gz --strip-components=1
export FERROCE_DIR=$work/devices QEMU_LD_PREFIX=$root

arm() {
    timeout 120 qemu-aarch64-static "$@"
}

arm bin/ferroce --version
arm bin/ferroce demo --loss 0.5% --blackout 50ms --bytes 8M >demo.txt || { cat demo.txt; exit 1; }

variables=$(arm bin/ferroce env)
program() (
    eval "$variables"
    export QEMU_SET_ENV="LD_LIBRARY_PATH=$LD_LIBRARY_PATH,LD_PRELOAD=$LD_PRELOAD"
    unset LD_LIBRARY_PATH LD_PRELOAD
    arm "$root/usr/bin/$1" "${@:2}"
)
program ibv_devinfo | grep -q 'PORT_ACTIVE'
program ib_write_bw -n 200 >server.txt &
server=$!
for _ in $(seq 50); do
    ! program ib_write_bw -n 200 127.0.0.1 >client.txt 2>&1 || break
    sleep 0.5
done
wait $server
grep -q '^ 65536 ' client.txt || { cat client.txt; exit 1; }
echo "arm64: used"
