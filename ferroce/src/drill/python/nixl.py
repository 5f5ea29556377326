# NIXL with its backend UCX, as the ring uses it.

import sys
import types

api = None
CODES = {
    "NotPosted": -1,
    "InvalidParam": -2,
    "Backend": -3,
    "NotFound": -4,
    "Mismatch": -5,
    "NotAllowed": -6,
    "RepostActive": -7,
    "Unknown": -8,
    "NotSupported": -9,
    "RemoteDisconnect": -10,
    "Canceled": -11,
}


def load(arguments):
    """Imports the library; its version."""
    global api
    # Older releases import it, for tensors, which are not used here.
    torch = types.ModuleType("torch")
    torch.Tensor = type("Tensor", (), {})
    sys.modules["torch"] = torch
    from importlib import metadata

    from nixl_cu12 import _api as api

    return metadata.version("nixl-cu12")


class Library:
    def __init__(self, name, arguments, memory):
        self.agent = api.nixl_agent(name, api.nixl_agent_config(backends=[]))
        parameters = {"ucx_error_handling_mode": arguments.errors}
        self._call("create_backend", "UCX", parameters)
        areas = [(memory.address, memory.size, 0, "")]
        self._call("register_memory", areas, "DRAM")
        self.peer = None

    def handle(self):
        return self._call("get_agent_metadata").hex()

    def connect(self, handle):
        peer = self._call("add_remote_agent", bytes.fromhex(handle))
        self.peer = peer.decode() if isinstance(peer, bytes) else peer

    def write(self, source, target, size):
        local = self._call("get_xfer_descs", [(source, size, 0)], "DRAM")
        remote = self._call("get_xfer_descs", [(target, size, 0)], "DRAM")
        write = self._call("initialize_xfer", "WRITE", local, remote, self.peer)
        self._check("transfer", self._call("transfer", write))
        return write

    def is_complete(self, write):
        state = self._call("check_xfer_state", write)
        self._check("check_xfer_state", state)
        return state == "DONE"

    def progress(self):
        """Threads of its own see to what arrives."""

    def _call(self, name, *arguments):
        try:
            return getattr(self.agent, name)(*arguments)
        except Exception as error:
            kind = type(error).__name__
            code = CODES.get(kind.removeprefix("nixl").removesuffix("Error"), 0)
            raise Failed(name, code, kind) from error

    @staticmethod
    def _check(call, state):
        if state == "ERR":
            raise Failed(call, CODES["Backend"], "ERR")
