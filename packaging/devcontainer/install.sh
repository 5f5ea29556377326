#!/bin/sh
# Puts a release of Ferroce below /usr/local of a development container; VERSION is the feature's option.
set -eu

version=${VERSION:-0.2.0}
prefix=${FERROCE_PREFIX:-/usr/local}
from=${FERROCE_RELEASES:-https://github.com/ferroce/ferroce/releases/download}/v$version
machine=$(uname -m)
name=ferroce-$version-$machine-linux.tar.gz

case "$(uname -s) $machine" in
    "Linux x86_64" | "Linux aarch64") ;;
    *)
        echo "Ferroce runs on Linux on x86-64 and 64-bit Arm, not on $(uname -sm)" >&2
        exit 1
        ;;
esac
if ! command -v curl >/dev/null; then
    apt-get update -q
    apt-get install -qy --no-install-recommends ca-certificates curl
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
curl -fsSLO "$from/$name"
curl -fsSLO "$from/SHA256SUMS"
grep " $name\$" SHA256SUMS | sha256sum -c -
tar --no-same-owner -xzf "$name"
program=./ferroce-$version-$machine-linux/bin/ferroce
if ! "$program" --version; then
    echo "Ferroce needs glibc 2.28 or newer and does not start here; older systems and those with musl," \
        "such as Alpine, cannot run it. Use an image with glibc, for example debian:bookworm-slim" >&2
    exit 1
fi
"$program" install "$prefix"
