#!/usr/bin/env bash
# Makes a Debian package of a prefix that `ferroce install` has laid out: deb.sh PREFIX VERSION ARCHITECTURE OUT.deb
set -euo pipefail

prefix=$1 version=$2 architecture=$3 out=$4
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

mkdir -p "$root/usr" "$root/DEBIAN"
cp -a "$prefix/." "$root/usr/"
# Debian keeps manual pages and changelogs packed, and systemd looks for users' units here.
find "$root/usr/share/man" -type f -exec gzip -9n {} +
mkdir -p "$root/usr/lib/systemd/user"
mv "$root/usr/share/systemd/user/ferroce-exporter.service" "$root/usr/lib/systemd/user/"
rm -r "$root/usr/share/systemd"
sed -i 's|^ExecStart=.*/ferroce |ExecStart=/usr/bin/ferroce |' \
    "$root/usr/lib/systemd/user/ferroce-exporter.service"
cat "$root"/usr/share/doc/ferroce/LICENSE-* >"$root/usr/share/doc/ferroce/copyright"
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/_ferroce" "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"

cat >"$root/DEBIAN/control" <<CONTROL
Package: ferroce
Version: $version
Architecture: $architecture
Maintainer: The Ferroce authors <ferroce@users.noreply.github.com>
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Depends: libc6 (>= 2.28), libgcc-s1
Suggests: perftest, ibverbs-utils, rdmacm-utils, prometheus
Section: net
Priority: optional
Homepage: https://github.com/ferroce/ferroce
Description: software RoCEv2 NIC for programs that use RDMA
 Programs that use libibverbs or librdmacm run on it unmodified, without RDMA
 hardware, kernel modules or privileges. It has the retransmission timeouts,
 counters and access registers of ConnectX and BlueField cards, and links that
 can be impaired.
 .
 The libraries are in a directory of their own; nothing but "ferroce run" loads
 them.
CONTROL
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "$out" >/dev/null
