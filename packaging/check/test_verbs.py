"""A test of a project that uses verbs from Python."""

import pytest
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE


@pytest.fixture
def context():
    names = [device.name.decode() for device in get_device_list()]
    assert names, "no RDMA device"
    return Context(name=names[0])


def test_memory_is_registered(context):
    with PD(context) as pd, MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE) as mr:
        mr.write(b"hello", 5)
        assert mr.read(5, 0) == b"hello"


def test_an_empty_queue_has_no_completion(context):
    assert CQ(context, 16).poll()[0] == 0
