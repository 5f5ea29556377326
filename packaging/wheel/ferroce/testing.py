"""Devices for tests, with the means to make trouble.

    with Devices() as devices:
        device = devices.add()
        server = device.start("ib_write_bw")
        with device.impair(loss="1%"):
            device.run("ib_write_bw", "127.0.0.1")
        assert device.counters()["packet_seq_err"] > 0

Each device has a name and a loopback address that no other process has, so tests may run side by
side. The methods do what commands of the same name do: https://github.com/ferroce/ferroce.
"""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

from ferroce import program

# The UDP port of RoCEv2.
_ROCE_PORT = 4791
# How often `wait_for` looks.
_PERIOD_S = 0.02
# How long a program may take to end when it is asked to.
_GRACE_S = 5
# How long programs may run if a test does not say.
_PATIENCE_S = 60
# Devices are named py PID _ NUMBER; the process tells whether anyone still uses them.
_NAME = re.compile(r"py(\d+)_\d+$")


class FerroceError(Exception):
    """`ferroce` refused a command. The text is what it printed."""


class ProgramFailed(AssertionError):
    """A program did not succeed: its command, what became of it, and what it printed."""


class Devices:
    """The devices of a test. As a context it removes them at its end, and ends their programs."""

    # Of all in this process: how many there were, and the addresses of those that there are.
    _count = 0
    _addresses = set()

    def __init__(self):
        self._devices = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def add(self, **settings):
        """A new device, with settings of `ferroce dev add`: add(speed="25G"),
        add(**{"personality.adaptive": "off"})."""
        words = [str(word) for pair in settings.items() for word in pair]
        name, address = self._free()
        _ferroce("dev", "add", name, address, *words)
        device = Device(name, address)
        Devices._addresses.add(address)
        self._devices.append(device)
        return device

    def close(self):
        """Ends the programs of the devices, and removes the devices."""
        devices, self._devices = self._devices, []
        # A program may use the address of another's device: all end before the first device goes.
        for device in devices:
            device._end_programs()
        for device in devices:
            device._remove()
            Devices._addresses.discard(device.address)

    @classmethod
    def _free(cls):
        """A name and an address that no other process has."""
        low = os.getpid() & 0xFFFF
        for _ in range(62):
            Devices._count += 1
            address = f"127.{192 + Devices._count % 62}.{low >> 8}.{low & 0xFF}"
            if address in Devices._addresses:
                continue
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                try:
                    probe.bind((address, _ROCE_PORT))
                except OSError:
                    continue
            return f"py{os.getpid()}_{Devices._count}", address
        raise FerroceError("all 62 addresses for the devices of this process are in use; close some")


class Device:
    """A device: `name` as programs see it, `address` for rdma_cm."""

    def __init__(self, name, address):
        self.name = name
        self.address = address
        self._programs = []
        self._faults = []

    def __repr__(self):
        return f"Device({self.name!r}, {self.address!r})"

    def start(self, *command, options=(), env=None):
        """Starts a program that sees this device alone. `options` are those of `ferroce run`, such
        as ("--pcap", "run.pcapng"); `env` adds variables. The program is ended with the test."""
        words = [program(), "run", "-d", self.name, *options, "--", *map(str, command)]
        started = Program(words, env)
        self._programs.append(started)
        return started

    def run(self, *command, options=(), env=None, timeout=_PATIENCE_S):
        """Runs a program to its end, and returns what it printed. Raises ProgramFailed if it fails
        or takes longer than `timeout` seconds."""
        return self.start(*command, options=options, env=env).wait(timeout)

    def impair(self, *words, **what):
        """Impairs the link: impair(loss="1%", delay="50us"), impair("carrier", down="200ms@3s").
        It lasts until the test ends, or until a `with` does."""
        given = [str(word) for pair in what.items() for word in pair]
        _ferroce("impair", "set", self.name, *given, *words)
        return _Until(lambda: _ferroce("impair", "clear", self.name))

    def link_down(self, duration=None):
        """Takes the port down: until a `with` or the test ends, or for a time such as "300ms"."""
        for_a_while = ["for", duration] if duration else []
        _ferroce("link", "set", self.name, "down", *for_a_while)
        return _Until(self.link_up)

    def link_flap(self, times, down_every):
        """Takes the port down again and again: link_flap(10, "200ms/2s")."""
        _ferroce("link", "set", self.name, "flap", f"{times}x", down_every)
        return _Until(self.link_up)

    def link_up(self):
        """Takes the port up."""
        _ferroce("link", "set", self.name, "up")

    def fault(self, rule):
        """Adds a fault rule for programs on this device: fault("post_send=ENOMEM,nth=3"). Rules
        for calls that come before a device is chosen belong to one program:
        start(..., options=("--fault", RULE))."""
        added = Fault(rule, self.name)
        self._faults.append(added)
        return added

    def counters(self):
        """All counters by name, link_downed included."""
        device, = json.loads(_ferroce("-j", "stat", "show", self.name))["devices"]
        port, = json.loads(_ferroce("-j", "link", "show", self.name))["ports"]
        return {**device["counters"], "link_downed": port["link_downed"]}

    def _end_programs(self):
        for started in self._programs:
            started.stop()

    def _remove(self):
        for fault in self._faults:
            fault.clear()
        # The test's own process may have it open.
        _ferroce("dev", "del", self.name, "--force")


class Fault:
    """A fault rule in force. As a context it is removed at its end."""

    def __init__(self, rule, device):
        on_device = f"device={device}"
        rows = json.loads(_ferroce("-j", "fault", "add", f"{rule},{on_device}"))["rules"]
        # Other processes may have added theirs meanwhile.
        self._number = next(row["number"] for row in reversed(rows)
                            if on_device in row["rule"].split(","))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.clear()

    @property
    def met(self):
        """How often programs came to what the rule is about."""
        return self._row()["met"]

    @property
    def injected(self):
        """How often the fault was injected."""
        return self._row()["injected"]

    def clear(self):
        """Removes the rule, if it is still there."""
        if self._find():
            _ferroce("fault", "clear", str(self._number))

    def _row(self):
        row = self._find()
        if not row:
            raise FerroceError(f"fault rule {self._number} has been cleared")
        return row

    def _find(self):
        rows = json.loads(_ferroce("-j", "fault", "list"))["rules"]
        return next((row for row in rows if row["number"] == self._number), None)


class Program:
    """A running program, with its output in a file: a full pipe never stops it."""

    def __init__(self, command, env):
        self.command = command
        self._file = tempfile.TemporaryFile()
        # A process group of its own, so that it ends with its children.
        self._process = subprocess.Popen(
            command, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
            stdout=self._file, stderr=subprocess.STDOUT, start_new_session=True)

    @property
    def output(self):
        """What it has printed so far, on both streams."""
        return os.pread(self._file.fileno(), os.fstat(self._file.fileno()).st_size, 0).decode(errors="replace")

    @property
    def is_running(self):
        return self._process.poll() is None

    def wait(self, timeout=_PATIENCE_S):
        """Waits until it ends, and returns its output. Raises ProgramFailed if it fails, or kills
        it if it takes longer."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed(f"did not end within {timeout} s") from None
        if status:
            raise self._failed(f"ended with status {status}" if status > 0 else
                               f"was ended by {signal.Signals(-status).name}")
        return self.output

    def signal(self, number):
        """Sends a signal to it and its children, such as SIGSTOP and SIGCONT."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        """Ends it at once, as a crash does."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def stop(self):
        """Ends it, if it is running: politely first."""
        if self.is_running:
            self.signal(signal.SIGTERM)
            # A stopped process ends when it goes on.
            self.signal(signal.SIGCONT)
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                pass
        # Children may be left.
        self.kill()

    def _failed(self, how):
        command = " ".join(self.command[self.command.index("--") + 1:])
        return ProgramFailed(f"{command} {how}:\n{self.output}")


class _Until:
    """What is undone when a `with` ends."""

    def __init__(self, undo):
        self._undo = undo

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._undo()


def wait_for(condition, timeout=30, what="the condition"):
    """Calls `condition` until it returns something true, and returns that. Raises AssertionError
    after `timeout` seconds."""
    end = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() >= end:
            raise AssertionError(f"waited {timeout} s in vain for {what}")
        time.sleep(_PERIOD_S)


def free_port():
    """A TCP port for a program that exchanges addresses over one, such as ib_write_bw -p."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    """Whether a program listens on a TCP port. Unlike a connection, the look does not disturb it."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as rows:
                fields = [row.split() for row in rows]
        except FileNotFoundError:
            continue
        if any(it[1].endswith(f":{port:04X}") and it[3] == "0A" for it in fields[1:]):
            return True
    return False


def remove_leftovers():
    """Removes devices of processes that were killed before they could."""
    shown = json.loads(_ferroce("-j", "dev", "show"))
    for device in shown["devices"]:
        owner = _NAME.match(device["device"])
        if owner and not os.path.exists(f"/proc/{owner[1]}"):
            try:
                _ferroce("dev", "del", device["device"])
            except FerroceError:
                # A program of the dead process still runs.
                pass


def _ferroce(*words):
    path = program()
    try:
        ended = subprocess.run([path, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, universal_newlines=True)
    except OSError as error:
        raise FerroceError(f"cannot run {path}: {error.strerror}; install the package ferroce again, "
                           "or set FERROCE_BIN") from None
    if ended.returncode:
        raise FerroceError(ended.stderr.strip())
    return ended.stdout
