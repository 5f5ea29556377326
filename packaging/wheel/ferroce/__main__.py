"""`python -m ferroce`: the program that was installed with this package."""

import os
import sys
import sysconfig
from importlib.metadata import distribution


def program():
    """Where the installer has put the program: it is in the package's record."""
    for file in distribution("ferroce").files or []:
        if file.name == "ferroce" and file.parent.name == "bin":
            return os.path.realpath(str(file.locate()))
    return os.path.join(sysconfig.get_path("scripts"), "ferroce")


def main():
    path = program()
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"cannot run {path}: {error.strerror}; install the package ferroce again")


if __name__ == "__main__":
    main()
