"""Ferroce, a software RoCEv2 NIC. The program `ferroce` is beside this interpreter.

    python -m ferroce run -- pytest

`ferroce.testing` has devices for tests; pytest has them as fixtures.
"""

import os
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution


def program():
    """The path of the program `ferroce`: $FERROCE_BIN, or where the installer has put it."""
    given = os.environ.get("FERROCE_BIN")
    if given:
        return given
    try:
        files = distribution("ferroce").files or []
    except PackageNotFoundError:
        files = []
    for file in files:
        # The package's record knows the place, whatever the scheme of the installation.
        if file.name == "ferroce" and file.parent.name == "bin":
            return os.path.realpath(str(file.locate()))
    return os.path.join(sysconfig.get_path("scripts"), "ferroce")
