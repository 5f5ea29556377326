# Mooncake's transfer engine, as the ring uses it.

engine = None


def load(arguments):
    """Imports the library; its version."""
    global engine
    from importlib import metadata

    from mooncake import engine

    return metadata.version("mooncake-transfer-engine-non-cuda")


class Library:
    def __init__(self, name, arguments, memory):
        self.engine = engine.TransferEngine()
        code = self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", arguments.rails)
        self._check("initialize", code)
        code = self.engine.register_memory(memory.address, memory.size)
        self._check("register_memory", code)
        self.peer = None

    def handle(self):
        return f"127.0.0.1:{self.engine.get_rpc_port()}"

    def connect(self, handle):
        self.peer = handle

    def write(self, source, target, size):
        batch = self.engine.transfer_submit_write(self.peer, source, target, size)
        # A batch is the address of something. Errors are null, or a negative number without its sign.
        if batch == 0 or batch >= 1 << 63:
            self._check("transfer_submit_write", -1)
        return batch

    def is_complete(self, batch):
        status = self.engine.transfer_check_status(batch)
        if status < 0:
            self._check("transfer_check_status", status)
        return status == 1

    def progress(self):
        """Threads of its own see to what arrives."""

    @staticmethod
    def _check(call, code):
        if code:
            raise Failed(call, code, "error")
