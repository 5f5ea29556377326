# A host of a drill whose library is used from Python. The drill runs this together with a class
# Library, which comes before it, and speaks its protocol: JSON, a line each.
#
# Each step is written into the next host's memory, and then a flag. Steps are not acknowledged. The place
# of one is used again by a step that begins once the ring has gone round: each host is at most a window ahead of
# the host before it, so that the places of as many windows as there are hosts suffice.

import argparse
import ctypes
import json
import mmap
import os
import queue
import random
import signal
import sys
import threading
import time

WINDOW = 4
STEP_BYTES = 256 * 1024
WORD = 8
PROGRESS_NS = 50_000_000
STANDSTILL_NS = 50_000_000
PAUSE_S = 50e-6
# How far the payload of a step may be shifted, in words.
SHIFTS = 4096
GREETING = (1).to_bytes(WORD, "little")


class Failed(Exception):
    """A call of the library that has failed."""

    def __init__(self, call, code, name):
        super().__init__(call, code, name)
        self.report = {"report": "failed", "call": call, "code": code, "name": name}


def tell(report, **values):
    # All at once: the library prints into the same pipe.
    os.write(1, (json.dumps({"report": report, **values}) + "\n").encode())


def payload(host, channel):
    """The bytes of which each step of a channel sends a part."""
    return random.Random(host << 8 | channel).randbytes(STEP_BYTES + SHIFTS * WORD)


def part(payload, step):
    start = step % SHIFTS * WORD
    return payload[start:start + STEP_BYTES]


def flag_of(step):
    return (step + 1).to_bytes(WORD, "little")


class Place:
    """Where things are in a host's memory; it is the same in all of them."""

    def __init__(self, hosts, channels):
        self.steps = hosts * WINDOW
        words = channels * (self.steps + WINDOW + 2)
        self.bytes = channels * (self.steps + WINDOW) * STEP_BYTES + words * WORD
        self.channels = channels

    def step(self, channel, step):
        return (channel * self.steps + step % self.steps) * STEP_BYTES

    def outgoing(self, channel, step):
        return (self.channels * self.steps + channel * WINDOW + step % WINDOW) * STEP_BYTES

    def _word(self, channel, index):
        row = channel * (self.steps + WINDOW + 2) + index
        return self.channels * (self.steps + WINDOW) * STEP_BYTES + row * WORD

    def flag(self, channel, step):
        return self._word(channel, step % self.steps)

    def outgoing_flag(self, channel, step):
        return self._word(channel, self.steps + step % WINDOW)

    def greeting(self, channel):
        return self._word(channel, self.steps + WINDOW)

    def outgoing_greeting(self, channel):
        return self._word(channel, self.steps + WINDOW + 1)


class Memory:
    def __init__(self, size):
        self.map = mmap.mmap(-1, size)
        self.size = size
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def read(self, at, size):
        return self.map[at:at + size]

    def write(self, at, content):
        self.map[at:at + len(content)] = content


class Link:
    """The library's memory here, and the next host's."""

    def __init__(self, library, memory):
        self.library = library
        self.memory = memory
        self.base = None

    def connect(self, handle):
        handle = json.loads(bytes.fromhex(handle))
        self.base = handle["base"]
        self.library.connect(handle["library"])

    def handle(self):
        handle = {"base": self.memory.address, "library": self.library.handle()}
        return json.dumps(handle).encode().hex()

    def put(self, source, place, size):
        return self.library.write(self.memory.address + source, self.base + place, size)

    def is_complete(self, write):
        return self.library.is_complete(write)

    def flag(self, place):
        self.library.progress()
        return self.memory.read(place, WORD)


class Channel:
    def __init__(self, arguments, link, place, channel):
        self.link, self.place, self.channel = link, place, channel
        before = (arguments.host - 1) % arguments.hosts
        self.own = payload(arguments.host, channel)
        self.theirs = payload(before, channel)
        self.pace_ns = arguments.pace_ns
        self.next_ns = 0
        # Of each step in the window, the write of the data or of the flag.
        self.outgoing = [None] * WINDOW
        self.begun = 0
        self.received = 0
        self.bytes = 0
        self.wrong_words = 0
        self.last_ns = time.monotonic_ns()
        link.memory.write(place.outgoing_greeting(channel), GREETING)
        source, target = place.outgoing_greeting(channel), place.greeting(channel)
        self.greeting = link.put(source, target, WORD)

    def has_greeted(self):
        """Whether the greeting has left, and the one of the host before is there."""
        if self.greeting is not None and self.link.is_complete(self.greeting):
            self.greeting = None
        there = self.link.flag(self.place.greeting(self.channel))
        return self.greeting is None and there == GREETING

    def drive(self):
        """Goes on; whether anything moved."""
        return self.advance() | self.begin() | self.receive()

    def advance(self):
        moved = False
        for slot, outgoing in enumerate(self.outgoing):
            if outgoing is None:
                continue
            step, is_data, write = outgoing
            if not self.link.is_complete(write):
                continue
            moved = True
            self.outgoing[slot] = None
            if is_data:
                source = self.place.outgoing_flag(self.channel, step)
                self.link.memory.write(source, flag_of(step))
                write = self.link.put(source, self.place.flag(self.channel, step), WORD)
                self.outgoing[slot] = (step, False, write)
        return moved

    def begin(self):
        # As in a ring that reduces, a host sends no more than a window ahead of what it has received.
        step, slot, now = self.begun, self.begun % WINDOW, time.monotonic_ns()
        is_free = self.outgoing[slot] is None and step < self.received + WINDOW
        if not is_free or now < self.next_ns:
            return False
        self.next_ns = now + self.pace_ns
        source = self.place.outgoing(self.channel, step)
        self.link.memory.write(source, part(self.own, step))
        write = self.link.put(source, self.place.step(self.channel, step), STEP_BYTES)
        self.outgoing[slot] = (step, True, write)
        self.begun += 1
        return True

    def receive(self):
        step, memory = self.received, self.link.memory
        if self.link.flag(self.place.flag(self.channel, step)) != flag_of(step):
            return False
        there = memory.read(self.place.step(self.channel, step), STEP_BYTES)
        self.bytes += STEP_BYTES
        self.wrong_words += differing(there, part(self.theirs, step))
        self.received += 1
        now = time.monotonic_ns()
        if now - self.last_ns >= STANDSTILL_NS:
            tell("standstill", from_ns=self.last_ns, to_ns=now)
        self.last_ns = now
        return True


def differing(there, expected):
    if there == expected:
        return 0
    words = range(0, STEP_BYTES, WORD)
    return sum(there[at:at + WORD] != expected[at:at + WORD] for at in words)


class Orders:
    """The orders on standard input. At its end the process ends."""

    def __init__(self):
        self.queue = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in sys.stdin:
            self.queue.put(json.loads(line))
        os._exit(1)

    def wait(self):
        return self.queue.get()

    def next(self):
        return None if self.queue.empty() else self.queue.get()


class Host:
    def __init__(self, arguments):
        self.arguments = arguments
        self.orders = Orders()
        self.bytes = 0
        self.wrong_words = 0
        # What libraries may still write into stays.
        self.links = []

    def run(self):
        since_ns = None
        while True:
            channels = self.connect()
            if channels is None:
                return
            for channel in channels:
                channel.last_ns = since_ns or channel.last_ns
            tell("connected")
            try:
                order = self.exchange(channels)
            except Failed as failed:
                fail(failed)
                order = self.orders.wait()
            self.bytes += sum(it.bytes for it in channels)
            self.wrong_words += sum(it.wrong_words for it in channels)
            if order["order"] != "again":
                tell("closed")
                return
            since_ns = min(it.last_ns for it in channels)

    def connect(self):
        arguments = self.arguments
        place = Place(arguments.hosts, arguments.channels)
        memory = Memory(place.bytes)
        name = f"h{arguments.host}-{os.getpid()}-{len(self.links)}"
        link = Link(Library(name, arguments, memory), memory)
        self.links.append(link)
        tell("listening", handles=[link.handle()] * arguments.channels)
        order = self.orders.wait()
        if order["order"] != "connect":
            return None
        link.connect(order["handles"][0])
        channels = [Channel(arguments, link, place, it) for it in range(arguments.channels)]
        waiting = channels
        while waiting:
            if self.orders.next():
                return None
            waiting = [it for it in waiting if not it.has_greeted()]
            time.sleep(PAUSE_S)
        return channels

    def exchange(self, channels):
        """Drives the channels until the next order."""
        next_ns = 0
        while True:
            moved = False
            for channel in channels:
                moved |= channel.drive()
            now = time.monotonic_ns()
            if now >= next_ns:
                next_ns = now + PROGRESS_NS
                tell(
                    "progress",
                    at_ns=now,
                    bytes=self.bytes + sum(it.bytes for it in channels),
                    wrong_words=self.wrong_words + sum(it.wrong_words for it in channels),
                    oldest_ns=min(it.last_ns for it in channels),
                )
            order = self.orders.next()
            if order:
                return order
            if not moved:
                time.sleep(PAUSE_S)


def fail(failed):
    tell(at_ns=time.monotonic_ns(), **failed.report)


def main():
    # A drill that is killed leaves no process.
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", action="store_true")
    for name in ["host", "hosts", "channels", "pace-ns"]:
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ["library", "rails", "errors"]:
        parser.add_argument(f"--{name}", default="")
    arguments = parser.parse_args()
    try:
        tell("loaded", version=load(arguments), pid=os.getpid())
    except Exception as error:
        tell("refused", reason=(str(error) or repr(error)).splitlines()[0])
        os._exit(1)
    if arguments.probe:
        os._exit(0)
    host = Host(arguments)
    try:
        host.run()
    except Failed as failed:
        fail(failed)
        host.orders.wait()
    # Without destructors of libraries, which may wait for what is under way.
    os._exit(0)


main()
