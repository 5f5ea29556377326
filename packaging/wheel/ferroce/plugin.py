"""The fixtures for pytest, which finds this module by the package's entry point. `-p no:ferroce`
leaves them out."""

import pytest

from ferroce import testing


@pytest.fixture(scope="session")
def _no_leftovers():
    testing.remove_leftovers()


@pytest.fixture
def ferroce_devices(_no_leftovers):
    """Devices of this test alone: each call of `add()` makes one."""
    with testing.Devices() as devices:
        yield devices


@pytest.fixture
def ferroce_device(ferroce_devices):
    """A device of this test alone."""
    return ferroce_devices.add()
