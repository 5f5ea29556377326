#!/bin/sh
# Puts a release of Ferroce below /usr/local of a development container; VERSION is the feature's option.
set -eu

version=${VERSION:-0.2.0}
prefix=${FERROCE_PREFIX:-/usr/local}
from=${FERROCE_RELEASES:-https://github.com/ferroce/ferroce/releases/download}/v$version
name=ferroce-$version-x86_64-linux.tar.gz

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "Ferroce runs on Linux on x86-64, not on $(uname -sm)" >&2
    exit 1
fi
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
program=./ferroce-$version-x86_64-linux/bin/ferroce
if ! "$program" --version; then
    echo "Ferroce needs glibc 2.28 or newer and does not start here; older systems and those with musl," \
        "such as Alpine, cannot run it. Use an image with glibc, for example debian:bookworm-slim" >&2
    exit 1
fi
"$program" install "$prefix"
