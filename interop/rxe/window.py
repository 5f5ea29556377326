"""How fast Ferroce sends to a peer that is slower, and how much of it it sends again."""

from lab import Failed

LIMIT = 300  # seconds for one program
PORT = 21000
MTUS = [1024, 4096]
PROGRAMS = {"WRITE": "ib_write_bw", "SEND": "ib_send_bw", "READ": "ib_read_bw"}
# Queue pairs, bytes of a message, messages of each.
LOADS = [(1, 65536, 200), (16, 16384, 50)]
# Messages under way that a program allows itself: windows set by hand.
DEPTHS = [1, 2, 4, 8]
LOSS = "loss=1%"
# What is wanted: the share sent again; the time beside the best depth; the time with loss beside that
# without.
REPEATED_MAX = 0.05
BESIDE_BEST_MAX = 1.2
WITH_LOSS_MAX = 2.0

MIB = 1 << 20


class Bench:
    """Runs one program after another between the two sides."""

    def __init__(self, host, guest):
        self.host, self.guest = host, guest
        self.port = PORT

    def run(self, program, options, messages_bytes):
        """Seconds that it took, and the share of packets that were sent again."""
        self.port += 1
        command = f"exec {program} -x 1 -F -p {self.port} {options}"
        before = self.host.counters()
        serving = self.guest.start(f"{command} -d {self.guest.device}", LIMIT)
        self.guest.until_ready(serving, self.guest.tcp_test(self.port))
        asking = self.host.start(f"{command} -d {self.host.device} {self.guest.address}", LIMIT)
        output = asking.succeed()
        serving.succeed()
        after = self.host.counters()
        row = [line for line in output.splitlines() if line.split()[:1] == [options.split()[1]]]
        if not row:
            raise Failed(f"no table:\n{output}")
        seconds = messages_bytes / MIB / float(row[-1].split()[3])
        spent = {name: after.get(name, 0) - before.get(name, 0) for name in after}
        repeated = spent.get("retransmitted_packets", 0)
        # Requests of a READ are few; what they bring counts.
        packets = spent["rdma_tx_packets"] + spent["rdma_rx_packets"]
        return seconds, repeated / max(packets - repeated, 1)


def measure(host, guest):
    """Prints a row for each load; returns how many miss what is wanted."""
    bench = Bench(host, guest)
    print("MTU   operation  QPs  time s  sent again  beside best depth  with 1 % loss", flush=True)
    missed = 0
    for mtu in MTUS:
        for name, program in PROGRAMS.items():
            for qps, size, messages in LOADS:
                options = f"-s {size} -m {mtu} -q {qps} -n {messages}"
                if name == "READ":
                    options += " -o 1"
                total = qps * size * messages
                seconds, repeated = bench.run(program, options, total)
                best = min(bench.run(program, f"{options} -t {depth}", total)[0] for depth in DEPTHS)
                host.call("impair", host.device, LOSS, "--direction", "both")
                try:
                    lossy, _ = bench.run(program, options, total)
                except Failed as failed:
                    lossy = float("inf")
                    print(str(failed).splitlines()[0], flush=True)
                finally:
                    host.call("impair", host.device, "clear")
                good = (
                    repeated <= REPEATED_MAX
                    and seconds <= BESIDE_BEST_MAX * best
                    and lossy <= WITH_LOSS_MAX * seconds
                )
                missed += not good
                print(
                    f"{mtu:<5} {name:<9} {qps:>4} {seconds:>7.2f} {repeated:>11.1%}"
                    f" {seconds / best:>18.2f} {lossy / seconds:>14.2f}"
                    f"{'' if good else '  missed'}",
                    flush=True,
                )
    return missed
