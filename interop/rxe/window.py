"""How fast Ferroce sends to a peer that is slower, and how much of it it sends again.

An emulated guest takes as many packets as the machine lets it, which changes from one second to the
next. So each way to send is repeated, in turn with the others, and what counts is the median.
"""

from statistics import median

from lab import Failed

LIMIT = 120  # seconds for one program
PORT = 21000
MTUS = [1024, 4096]
PROGRAMS = {"WRITE": "ib_write_bw", "SEND": "ib_send_bw", "READ": "ib_read_bw"}
# Queue pairs, and bytes of a message.
LOADS = [(1, 65536), (16, 16384)]
# What a run transfers: half a second of work or two, by how busy the machine is.
RUN_PACKETS = {1024: 12800, 4096: 6400}
TIMES = 3
AUTO = "auto"
# Windows set by hand.
PINNED = ["32KiB", "64KiB", "256KiB"]
LOSSY = f"{AUTO}, 1 % loss each way"
LOSS = "loss=1%"
# What is wanted: the share sent again; the time beside the best pinned window; the time with loss
# beside that without.
REPEATED_MAX = 0.05
BESIDE_BEST_MAX = 1.2
WITH_LOSS_MAX = 2.0

MIB = 1 << 20
HEAD = "MTU   operation  QPs  time s  sent again  beside best window  with 1 % loss  of it timers"


class Cell:
    """One program with one load."""

    def __init__(self, mtu, name, queue_pairs, size):
        self.mtu, self.name, self.queue_pairs, self.size = mtu, name, queue_pairs, size
        self.messages = RUN_PACKETS[mtu] * mtu // (queue_pairs * size)
        # Seconds, shares sent again and seconds that queue pairs waited for timers, by the way to send.
        self.seconds, self.repeated, self.waited = {}, {}, {}

    def title(self):
        return f"{self.mtu} {self.name} {self.queue_pairs}"

    def has(self, word):
        """Whether that is in its title; 1 is not in 16."""
        return f"{word} " in f"{self.title()} "

    def options(self):
        options = f"-s {self.size} -m {self.mtu} -q {self.queue_pairs} -n {self.messages}"
        # One READ at a time. perftest asks for as many as its peer has, more than Ferroce takes.
        return options + (" -o 1" if self.name == "READ" else "")

    def note(self, way, seconds, repeated, waited):
        self.seconds.setdefault(way, []).append(seconds)
        self.repeated.setdefault(way, []).append(repeated)
        self.waited.setdefault(way, []).append(waited)

    def row(self):
        """What was measured as a line of the table, and whether it is what is wanted."""
        seconds = {way: median(times) for way, times in self.seconds.items()}
        best = min(PINNED, key=seconds.get)
        repeated = median(self.repeated[AUTO])
        beside_best = seconds[AUTO] / seconds[best]
        with_loss = seconds[LOSSY] / seconds[AUTO]
        # A timer that one of several queue pairs waits for need not hold up the others.
        timers = median(self.waited[LOSSY]) / self.queue_pairs / seconds[AUTO]
        good = (
            repeated <= REPEATED_MAX
            and beside_best <= BESIDE_BEST_MAX
            and with_loss <= WITH_LOSS_MAX
        )
        line = (
            f"{self.mtu:<5} {self.name:<9} {self.queue_pairs:>4} {seconds[AUTO]:>7.2f}"
            f" {repeated:>11.1%} {f'{beside_best:.2f} ({best})':>19} {with_loss:>14.2f}"
            f" {timers:>12.2f}"
        )
        return line + ("" if good else "  missed"), good


class Bench:
    """Runs one program after another between the two sides."""

    def __init__(self, host, guest):
        self.host, self.guest = host, guest
        self.port = PORT

    def run(self, cell, way):
        """Sends in one way, and notes how that was."""
        host = self.host
        host.call("dev", "set", host.device, "window", AUTO if way == LOSSY else way)
        if way == LOSSY:
            host.call("impair", "set", host.device, LOSS, "--direction", "both")
        try:
            cell.note(way, *self.transfer(cell))
        except Failed as failed:
            cell.note(way, float("inf"), 1.0, float("inf"))
            print(str(failed).splitlines()[0], flush=True)
        finally:
            host.call("impair", "clear", host.device)

    def transfer(self, cell):
        """Seconds that it took, the share of packets that were sent again, and the seconds that queue
        pairs waited for timers."""
        self.port += 1
        command = f"exec {PROGRAMS[cell.name]} -x 1 -F -p {self.port} {cell.options()}"
        before = self.host.counters()
        serving = self.guest.start(f"{command} -d {self.guest.device}", LIMIT)
        self.guest.until_ready(serving, self.guest.tcp_test(self.port))
        asking = self.host.start(f"{command} -d {self.host.device} {self.guest.address}", LIMIT)
        output = asking.succeed()
        serving.succeed()
        after = self.host.counters()
        rows = [line.split() for line in output.splitlines()]
        rows = [row for row in rows if row[:1] == [str(cell.size)]]
        if not rows or float(rows[-1][3]) == 0:
            raise Failed(f"no speed:\n{output}")
        total = cell.queue_pairs * cell.size * cell.messages
        seconds = total / MIB / float(rows[-1][3])
        spent = {name: after.get(name, 0) - before.get(name, 0) for name in after}
        repeated = spent.get("retransmitted_packets", 0)
        # Requests of a READ are few; what they bring counts.
        packets = spent["rdma_tx_packets"] + spent["rdma_rx_packets"]
        waited = spent["roce_adp_retrans_wait_ns"] / 1e9
        return seconds, repeated / max(packets - repeated, 1), waited


def every_cell():
    return [
        Cell(mtu, name, queue_pairs, size)
        for mtu in MTUS
        for name in PROGRAMS
        for queue_pairs, size in LOADS
    ]


def measure(host, guest, words, times):
    """Prints a row for each load whose title has one of the words; returns how many miss what is
    wanted."""
    bench = Bench(host, guest)
    cells = [cell for cell in every_cell() if not words or any(map(cell.has, words))]
    print(HEAD, flush=True)
    missed = 0
    for cell in cells:
        for _ in range(times):
            for way in [AUTO, LOSSY, *PINNED]:
                bench.run(cell, way)
        line, good = cell.row()
        missed += not good
        print(line, flush=True)
    return missed
