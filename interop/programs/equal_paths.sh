#!/bin/sh
# Two hosts with four equal paths between them. Usage: equal_paths.sh FERROCE DIRECTORY SETTING
# In a namespace of its own: unshare --map-root-user --net --pid --fork --kill-child --mount-proc.
# The devices have SETTING in ROCE_ACCL. Prints how many packets of `ib_write_bw` each path has carried.
set -e
ferroce=$1
directory=$2
setting=$3

unshare --net sleep 600 &
peer=$!
until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
there() { FERROCE_DIR=$directory/there nsenter --target $peer --net "$@"; }
here() { FERROCE_DIR=$directory/here "$@"; }
by() { for path in 1 2 3 4; do printf ' nexthop via 10.1.%s.%s' $path "$1"; done; }

ip link set lo up
there ip link set lo up
for path in 1 2 3 4; do
    ip link add here$path type veth peer name there$path netns $peer
    ip addr add 10.1.$path.1/24 dev here$path
    there ip addr add 10.1.$path.2/24 dev there$path
    ip link set here$path up
    there ip link set there$path up
done
ip addr add 10.9.0.1/32 dev lo
there ip addr add 10.9.0.2/32 dev lo
# shellcheck disable=SC2046
ip route add 10.9.0.2/32 src 10.9.0.1 $(by 2)
# shellcheck disable=SC2046
there ip route add 10.9.0.1/32 src 10.9.0.2 $(by 1)
# Ports count when a path is chosen.
echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy
there sh -c 'echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy'

mkdir -m 700 "$directory/here" "$directory/there"
here "$ferroce" dev add fr1 10.9.0.1 >/dev/null
there "$ferroce" dev add fr1 10.9.0.2 >/dev/null
here "$ferroce" reg set fr1 ROCE_ACCL "$setting" >/dev/null
there "$ferroce" reg set fr1 ROCE_ACCL "$setting" >/dev/null

test="ib_write_bw --ib-dev fr1 --mtu 1024 --size 65536 --iters 1000"
# shellcheck disable=SC2086
there "$ferroce" run -- $test >"$directory/server" 2>&1 &
server=$!
until there ss -ltnH | grep -q :18515; do sleep 0.01; done
# shellcheck disable=SC2086
here "$ferroce" run -- $test 10.9.0.2 >"$directory/client" 2>&1 || cat "$directory/client" >&2
wait $server
awk '/here[1-4]:/ { print "path", $11 }' /proc/net/dev
here "$ferroce" stat show fr1
there "$ferroce" stat show fr1
