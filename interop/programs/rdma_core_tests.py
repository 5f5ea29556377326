"""Runs the test suite of rdma-core and prints one line for each test: name, tab, result, tab, reason.

    rdma_core_tests.py DIRECTORY ADDRESS --dev fr0 --gid 1 [TEST...]

The directory holds the suite as Debian ships it, unpacked; the address is the device's. Results are
pass, skip and FAIL; a test that fails prints its traceback on standard error. Of the tests of drivers,
only those of mlx5 run that need no card.
"""

import faulthandler
import os
import sys
import unittest
from importlib.machinery import SourceFileLoader

faulthandler.enable()
directory, address = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, directory)
from args_parser import parser  # noqa: E402  (it lies in that directory)

tests = SourceFileLoader("tests", os.path.join(directory, "__init__.py")).load_module()
parser.parse_args()
from tests.base import RDMATestCase  # noqa: E402  (it asks for the arguments)

# The suite takes the first address of the interface, of which the device may have another.
RDMATestCase.get_ip_mac_address = staticmethod(lambda interface: (address, "00:00:00:00:00:00"))


class Lines(unittest.TestResult):
    """A result that says at once what became of a test."""

    def say(self, test, result, reason=""):
        print(test.id().removeprefix("tests."), result, " ".join(reason.split()), sep="\t", flush=True)

    def startTest(self, test):
        super().startTest(test)
        print(f"# {test.id()}", file=sys.stderr, flush=True)

    def addSuccess(self, test):
        self.say(test, "pass")

    def addSkip(self, test, reason):
        self.say(test, "skip", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        trace = self.failures[-1][1]
        print(trace, file=sys.stderr)
        self.say(test, "FAIL", trace.strip().splitlines()[-1])

    def addError(self, test, error):
        super().addError(test, error)
        trace = self.errors[-1][1]
        print(trace, file=sys.stderr)
        self.say(test, "FAIL", trace.strip().splitlines()[-1])


loader = unittest.defaultTestLoader
chosen = sys.argv[1:]
suite = loader.loadTestsFromNames(chosen) if chosen else loader.loadTestsFromModule(tests)


DRIVERS = ("tests.test_mlx5", "tests.test_efa")
WITHOUT_CARD = tuple(f"tests.test_mlx5_{what}." for what in ("cq", "dc", "query_port", "rdmacm"))


def wanted(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from wanted(test)
        elif test.id().startswith(WITHOUT_CARD) or not test.id().startswith(DRIVERS):
            yield test


unittest.TestSuite(wanted(suite)).run(Lines())
