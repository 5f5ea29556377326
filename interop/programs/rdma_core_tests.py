"""Runs the test suite of rdma-core and prints one line for each test: name, tab, result, tab, reason.

    rdma_core_tests.py DIRECTORY --dev fr0 --gid 1 [TEST...]

The directory holds the suite as Debian ships it, unpacked. Results are pass, skip and FAIL; a test
that fails prints its traceback on standard error.
"""

import faulthandler
import os
import sys
import unittest
from importlib.machinery import SourceFileLoader

faulthandler.enable()
directory = sys.argv.pop(1)
sys.path.insert(0, directory)
from args_parser import parser  # noqa: E402  (it lies in that directory)

tests = SourceFileLoader("tests", os.path.join(directory, "__init__.py")).load_module()
parser.parse_args()


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
suite.run(Lines())
