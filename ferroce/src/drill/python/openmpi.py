# Open MPI, as the ring uses it: a write is a message to the next host, which moves it to its place.

import collections
import ctypes
import re
import struct

mpi = None
HEADER = struct.Struct("<QQ8s")
HEADERS, CONTENTS = 0, 1


def load(arguments):
    """Loads the library; its version."""
    global mpi
    mpi = ctypes.CDLL(arguments.library, mode=ctypes.RTLD_GLOBAL)
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    mpi.MPI_Get_library_version(text, ctypes.byref(length))
    text = text.value.decode(errors="replace")
    version = re.match(r"Open MPI v((4\.1|5\.0)\.\d+)", text)
    if not version:
        raise ValueError(f"it is {text.split(',')[0]}; known is Open MPI 4.1 and 5.0")
    return version[1]


class Library:
    def __init__(self, name, arguments, memory):
        level, funneled = ctypes.c_int(), 1
        self._call("MPI_Init_thread", None, None, funneled, ctypes.byref(level))
        self.world = self._constant("ompi_mpi_comm_world")
        self.byte = self._constant("ompi_mpi_byte")
        errors_return = self._constant("ompi_mpi_errors_return")
        self._call("MPI_Comm_set_errhandler", self.world, errors_return)
        self.before = (arguments.host - 1) % arguments.hosts
        self.next = (arguments.host + 1) % arguments.hosts
        self.header = ctypes.create_string_buffer(HEADER.size)
        self.announced = self._receive(self.header, HEADER.size, HEADERS)
        # In the order of the messages: what is to arrive in its place, or a word that is to be put there.
        self.arriving = collections.deque()

    def handle(self):
        """Nothing: the next host is the one of the next rank."""

    def connect(self, handle):
        pass

    def write(self, source, target, size):
        # A word comes with the header. It may be a flag, which must not arrive before what was sent
        # earlier, and messages of different sizes may overtake each other.
        is_word = size == 8
        word = ctypes.string_at(source, size) if is_word else b""
        header = ctypes.create_string_buffer(HEADER.pack(target, size, word), HEADER.size)
        requests = [self._send(header, HEADER.size, HEADERS)]
        if not is_word:
            requests.append(self._send(ctypes.c_void_p(source), size, CONTENTS))
        return header, requests

    def is_complete(self, write):
        _, requests = write
        requests[:] = [it for it in requests if not self._is_done(it)]
        return not requests

    def progress(self):
        """Takes what has arrived: MPI moves nothing between calls."""
        if self._is_done(self.announced):
            target, size, word = HEADER.unpack(self.header.raw)
            if size == len(word):
                self.arriving.append((None, target, word))
            else:
                content = self._receive(ctypes.c_void_p(target), size, CONTENTS)
                self.arriving.append((content, target, b""))
            self.announced = self._receive(self.header, HEADER.size, HEADERS)
        while self.arriving:
            content, target, word = self.arriving[0]
            if content is not None and not self._is_done(content):
                return
            ctypes.memmove(target, word, len(word))
            self.arriving.popleft()

    def _send(self, at, size, tag):
        return self._start("MPI_Isend", at, size, self.next, tag)

    def _receive(self, at, size, tag):
        return self._start("MPI_Irecv", at, size, self.before, tag)

    def _start(self, call, at, size, peer, tag):
        request = ctypes.c_void_p()
        self._call(call, at, size, self.byte, peer, tag, self.world, ctypes.byref(request))
        return request

    def _is_done(self, request):
        done = ctypes.c_int()
        self._call("MPI_Test", ctypes.byref(request), ctypes.byref(done), None)
        return bool(done.value)

    @staticmethod
    def _constant(name):
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))

    @staticmethod
    def _call(name, *arguments):
        code = getattr(mpi, name)(*arguments)
        if code:
            kind, length = ctypes.c_int(), ctypes.c_int()
            text = ctypes.create_string_buffer(512)
            mpi.MPI_Error_class(code, ctypes.byref(kind))
            mpi.MPI_Error_string(code, text, ctypes.byref(length))
            raise Failed(name, kind.value, text.value.decode(errors="replace"))
