"""`python -m ferroce`: the program that was installed with this package."""

import os
import sys

from ferroce import program


def main():
    path = program()
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"cannot run {path}: {error.strerror}; install the package ferroce again")


if __name__ == "__main__":
    main()
