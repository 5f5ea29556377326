#!/usr/bin/env python3
"""Makes packages of a prefix that `ferroce install` has laid out.

The same input gives the same bytes: names are sorted, times are SOURCE_DATE_EPOCH, owners are root.
Only the standard library is used.

    assemble.py tarball PREFIX VERSION MACHINE OUT-DIRECTORY
    assemble.py wheel   PREFIX VERSION MACHINE OUT-DIRECTORY
    assemble.py layer   PREFIX VERSION MACHINE OUT.tar

MACHINE is x86_64 or aarch64.
"""

import base64
import gzip
import hashlib
import os
import stat
import sys
import tarfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])

# The libraries need this C library or a newer one; `./release` builds for it.
WHEEL_TAG = "py3-none-manylinux_2_28_"


def entries(prefix):
    """Files and links below a directory with their names, sorted."""
    found = [path for path in prefix.rglob("*") if path.is_symlink() or path.is_file()]
    return sorted((str(path.relative_to(prefix)), path) for path in found)


def mode(path):
    return 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644


def add_tree(archive, prefix, top):
    """Adds a tree to a tar archive below a directory, directories first."""
    directories = set()
    for name, path in entries(prefix):
        name = f"{top}{name}"
        parents = [str(parent) for parent in Path(name).parents if str(parent) not in (".", "/")]
        for parent in sorted(set(parents) - directories):
            directories.add(parent)
            info = tarfile.TarInfo(parent)
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, EPOCH
            archive.addfile(info)
        info = tarfile.TarInfo(name)
        info.mtime = EPOCH
        if path.is_symlink():
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            archive.addfile(info)
            continue
        info.mode, info.size = mode(path), path.stat().st_size
        with path.open("rb") as file:
            archive.addfile(info, file)


def tarball(prefix, version, machine, out):
    name = f"ferroce-{version}-{machine}-linux"
    with open(Path(out) / f"{name}.tar.gz", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, EPOCH) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
            add_tree(archive, prefix, f"{name}/")


def layer(prefix, _version, _machine, out):
    """What a container image gets: the same prefix below /usr/local."""
    with tarfile.open(out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        add_tree(archive, prefix, "usr/local/")


METADATA = """Metadata-Version: 2.1
Name: ferroce
Version: {version}
Summary: A software RoCEv2 NIC you program like a real one
Home-page: https://github.com/ferroce/ferroce
License: MIT OR Apache-2.0
Requires-Python: >=3.7
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

"""

WHEEL = """Wheel-Version: 1.0
Generator: ferroce
Root-Is-Purelib: false
Tag: {tag}
"""

# pytest finds its plugin by it.
ENTRY_POINTS = """[pytest11]
ferroce = ferroce.plugin
"""


def wheel(prefix, version, machine, out):
    """The program becomes a script, the rest data: both end up in the prefix of the environment,
    where the program finds its libraries. Wheels have no links and no headers."""
    tag = WHEEL_TAG + machine
    data, info = f"ferroce-{version}.data", f"ferroce-{version}.dist-info"
    files = [(f"ferroce/{name}", path.read_bytes(), 0o644)
             for name, path in entries(HERE / "wheel/ferroce") if name.endswith(".py")]
    for name, path in entries(prefix):
        if path.is_symlink() or name.startswith("include/") or "/pkgconfig/" in name:
            continue
        place = "scripts/ferroce" if name == "bin/ferroce" else f"data/{name}"
        files.append((f"{data}/{place}", path.read_bytes(), mode(path)))
    about = METADATA.format(version=version) + (HERE / "wheel/README.md").read_text()
    files.append((f"{info}/METADATA", about.encode(), 0o644))
    files.append((f"{info}/WHEEL", WHEEL.format(tag=tag).encode(), 0o644))
    files.append((f"{info}/entry_points.txt", ENTRY_POINTS.encode(), 0o644))
    record = f"{info}/RECORD"
    lines = [f"{name},{digest(content)},{len(content)}\n" for name, content, _ in files]
    files.append((record, "".join([*lines, f"{record},,\n"]).encode(), 0o644))
    path = Path(out) / f"ferroce-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content, permissions in files:
            entry = zipfile.ZipInfo(name, time.gmtime(EPOCH)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | permissions) << 16
            archive.writestr(entry, content)


def digest(content):
    code = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return "sha256=" + code.decode().rstrip("=")


if __name__ == "__main__":
    kinds = {"tarball": tarball, "wheel": wheel, "layer": layer}
    if len(sys.argv) != 6 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    kinds[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
