"""What runs against soft-RoCE: one `Case` for each program and direction."""

import re
import time

from lab import Failed

LIMIT = 60  # seconds for one program of a case
# Seconds for one that runs while the link loses packets.
IMPAIRED_LIMIT = 90
# The other end of a message that rxe never acknowledges waits for longer, and the kernel asks for a
# disconnect for longer where two answers in a row are lost.
DISCONNECT_LIMIT = 15
GRACE_S = 3
FIRST_PORT = 20000
# READs and atomics at a time.
OUTSTANDING = " -o 16"
GROUP = "239.8.0.9"
GROUP_S = 1
# Packets that rxe has taken; and a row of names, then one of numbers, about UDP.
KERNEL_COUNTS = (
    "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts"
    " && grep Udp: /proc/net/snmp"
)
UDP_FIELDS = 10  # from a name to its number
GROUP_IN_TABLE = "090008EF"  # as /proc/net/igmp has it


class Case:
    """A name, and a function of the two sides that raises `Failed`."""

    def __init__(self, name, body, tries=1, alone=False, link=""):
        self.name = name
        self.body = body
        # More than one where datagrams may be lost because the guest gets no processor.
        self.tries = tries
        # Nothing else runs beside it.
        self.alone = alone
        # A direction and an impairment: `ingress loss=1%` is of what Ferroce receives.
        self.link = link


class Cases:
    """A list of cases that hands out ports."""

    def __init__(self):
        self.all = []
        self._port = FIRST_PORT

    def port(self):
        self._port += 1
        return self._port

    def add(self, name, body, **options):
        self.all.append(Case(name, body, **options))

    def pair(self, name, server, client, by_cm=False, limit=LIMIT, prints=None, port=None, **options):
        """A server and a client that both have to end well: the client on Ferroce, then on rxe.

        The commands may have {device}, {address} of the server, {own} address, and {port}.
        """
        for from_host in [True, False]:
            number = port or self.port()
            arguments = (server, client, number, by_cm, limit, prints)

            def body(host, guest, from_host=from_host, arguments=arguments):
                sides = (guest, host) if from_host else (host, guest)
                run_pair(*sides, *arguments)

            client_name = "ferroce" if from_host else "rxe"
            self.add(f"{name}, client {client_name}", body, **options)


def fill_in(command, own, server, port):
    """`command` with its places filled in."""
    return command.format(device=own.device, address=server.address, own=own.address, port=port)


def run_pair(server, client, server_command, client_command, port, by_cm, limit, prints):
    """Starts a server, and its client when it listens; both have to end well."""
    serving = server.start("exec " + fill_in(server_command, server, server, port), limit)
    test = server.cm_test(port) if by_cm else server.tcp_test(port)
    server.until_ready(serving, test)
    asking = client.start("exec " + fill_in(client_command, client, server, port), limit)
    wrong = []
    for job in [asking, serving]:
        if wrong and not job.ended.wait(GRACE_S):
            # It waits for a peer that has failed.
            server.kill(job)
        try:
            output = job.succeed()
            if prints and job is asking and not re.search(prints, output):
                raise Failed(f"{job.command} printed:\n{output.strip()}")
        except Failed as failed:
            wrong.append(str(failed))
    if wrong:
        raise Failed("\n".join(wrong))


def perftest(cases):
    """Every program for two ends, with each transport it has; by TCP, and by rdma_cm."""
    services = {
        "write_bw": ["RC", "UC"],
        "write_lat": ["RC", "UC"],
        "read_bw": ["RC"],
        "read_lat": ["RC"],
        "send_bw": ["RC", "UC", "UD"],
        "send_lat": ["RC", "UC", "UD"],
        "atomic_bw": ["RC"],
        "atomic_lat": ["RC"],
    }
    for program, types in services.items():
        for service in types:
            # perftest connects no UC by rdma_cm.
            for by_cm in [False] if service == "UC" else [False, True]:
                command = f"ib_{program} -d {{device}} -x 1 -F -c {service} -p {{port}} -n 100"
                # perftest asks for as many as its peer has, which is 128; Ferroce has 16.
                if program.startswith(("read", "atomic")):
                    command += OUTSTANDING
                if program.endswith("bw") and not program.startswith("atomic"):
                    # An unreliable sender does not know what the other end has room for.
                    command += " -s 16384" if service == "RC" else " -s 1024 -t 16"
                    if program.startswith("send") and service != "RC":
                        command += " -r 128"
                if by_cm:
                    command += " -R"
                name = f"ib_{program} {service}{' -R' if by_cm else ''}"
                # perftest's client may connect before its server listens, which a kernel takes for
                # the end.
                tries = 1 if service == "RC" and not by_cm else 2
                cases.pair(
                    name, command, command + " {address}", by_cm, tries=tries, prints="#bytes"
                )
    cas = "ib_atomic_bw -d {device} -x 1 -F -A CMP_AND_SWAP -p {port} -n 100"
    for options in [OUTSTANDING, " -o 1"]:
        command = cas + options
        name = f"ib_atomic_bw CMP_AND_SWAP{options}"
        cases.pair(name, command, command + " {address}", prints="#bytes")


def ibverbs_utils(cases):
    """The ping-pongs, and the programs that look at a device."""
    for kind, options in {"rc": "-c", "uc": "-c", "ud": "-c", "srq": "-c -q 4"}.items():
        command = f"ibv_{kind}_pingpong -d {{device}} -g 1 -p {{port}} -n 200 {options}"
        tries = 2 if kind in ["uc", "ud"] else 1
        cases.pair(f"ibv_{kind}_pingpong", command, command + " {address}", tries=tries)

    def look(host, guest):
        for side in [host, guest]:
            side.start("exec ibv_devices", LIMIT).succeed()
            output = side.start(f"exec ibv_devinfo -d {side.device}", LIMIT).succeed()
            if "PORT_ACTIVE" not in output:
                raise Failed(f"{side.device} is not active:\n{output}")

    cases.add("ibv_devices, ibv_devinfo", look)

    def xrc(_host, guest):
        status, output = guest.start("exec ibv_xsrq_pingpong -d rxe0 -g 1", LIMIT).wait()
        if status == 0 or "XRC" not in output:
            raise Failed(f"the kernel has XRC now; test against it:\n{output}")

    cases.add("ibv_xsrq_pingpong: the kernel has no XRC", xrc)


def rdmacm_utils(cases):
    """The programs of the connection manager."""
    # A server of rping may destroy its channel while its own thread waits there, and fail of that.
    cases.pair(
        "rping",
        "rping -s -a {own} -p {port} -C 20 -V",
        "rping -c -a {address} -p {port} -C 20 -V",
        by_cm=True,
        tries=2,
    )
    cases.pair(
        "rping -q",
        "rping -s -q -a {own} -p {port} -C 20 -V",
        "rping -c -q -a {address} -p {port} -C 20 -V",
        by_cm=True,
        tries=2,
    )
    cases.pair(
        "ucmatose",
        "ucmatose -b {own} -p {port} -c 3 -C 10",
        "ucmatose -s {address} -p {port} -c 3 -C 10",
        by_cm=True,
    )
    cases.pair(
        "udaddy", "udaddy -b {own} -C 10", "udaddy -s {address} -C 10", by_cm=True, port=7174,
        tries=2,
    )
    cases.pair(
        "rdma_client", "rdma_server -p {port}", "rdma_client -s {address} -p {port}", by_cm=True
    )
    cases.pair(
        "rdma_xclient -c r",
        "rdma_xserver -p {port} -c r",
        "rdma_xclient -s {address} -p {port} -c r",
        by_cm=True,
    )
    for from_host in [True, False]:

        def time_connections(host, guest, from_host=from_host, port=cases.port()):
            client, server = (host, guest) if from_host else (guest, host)
            # The server serves for ever.
            serving = server.start(f"exec cmtime -b {server.address} -p {port} -c 20", LIMIT)
            server.until_ready(serving, server.cm_test(port))
            client.start(f"exec cmtime -s {server.address} -p {port} -c 20", LIMIT).succeed()
            server.kill(serving)

        client = "ferroce" if from_host else "rxe"
        cases.add(f"cmtime, client {client}", time_connections)

        def group(host, guest, from_host=from_host):
            sender, receiver = (host, guest) if from_host else (guest, host)
            command = f"exec mckey -m {GROUP} -C 10 -b "
            receiving = receiver.start(command + receiver.address, LIMIT)
            receiver.until_ready(receiving, receiver.group_test(GROUP_IN_TABLE))
            # The system has joined before the queue pair has.
            time.sleep(GROUP_S)
            sender.start(f"{command}{sender.address} -s", LIMIT).succeed()
            receiving.succeed()

        sender = "ferroce" if from_host else "rxe"
        cases.add(f"mckey, sender {sender}", group, tries=2)


def rsockets(cases):
    """Streams, whose other end is librdmacm's. Its datagrams do without a GRH, which RoCE needs."""
    sizes = {"64": (200, ""), "65536": (20, ""), "1000000": (4, ""), "4000000": (1, " -B 65536")}
    for size, (count, options) in sizes.items():
        for way in ["b", "n"]:
            command = f"rstream -p {{port}} -S {size} -C {count} -T v -T {way}{options}"
            cases.pair(
                f"rstream {size} bytes -T {way}", f"{command} -b {{own}}", f"{command} -s {{address}}",
                by_cm=True, prints=r"Gb/sec(.*\n)+custom",
            )
    command = "riostream -p {port} -S 65536 -C 20 -T v"
    cases.pair(
        "riostream", f"{command} -b {{own}}", f"{command} -s {{address}}", by_cm=True,
        prints=r"Gb/sec(.*\n)+custom",
    )


def own_programs(cases):
    """Every operation and length, faults, and the events of connections."""
    mtus = {"rc": [256, 1024, 4096], "rc:16": [1024], "uc": [256, 1024, 4096], "ud": [4096]}
    for kind, mtu in [(kind, mtu) for kind in mtus for mtu in mtus[kind]]:
        command = f"bytes {kind} {mtu} some {{port}}"
        cases.pair(
            f"bytes {kind}, MTU {mtu}", command, command + " {address}",
            tries=1 if kind.startswith("rc") else 2,
        )
    cases.pair("faults", "faults {port}", "faults {port} {address}")
    for what in ["data", "bye", "leave", "reject"]:
        command = f"connect {what} {{address}} {{port}}"
        cases.pair(f"connect: {what}", command, command + " client", by_cm=True)
    for from_host in [True, False]:
        name = "ferroce" if from_host else "rxe"
        other = "rxe" if from_host else "ferroce"

        def nobody(host, guest, from_host=from_host, port=cases.port()):
            client, server = (host, guest) if from_host else (guest, host)
            command = f"exec connect nobody {server.address} {port} client"
            client.start(command, LIMIT).succeed()

        cases.add(f"connect: nobody listens, client {name}", nobody)

        def killed(host, guest, from_host=from_host, port=cases.port()):
            client, server = (host, guest) if from_host else (guest, host)
            serving = server.start(f"exec faults stream {port}", LIMIT)
            server.until_ready(serving, server.tcp_test(port))
            command = f"exec faults stream {port} {server.address}"
            asking = client.start(command, LIMIT)
            server.until_printed(serving, "streaming")
            server.kill(serving)
            output = asking.succeed()
            if not re.search(r"status 12$", output.strip()):
                raise Failed(f"the requester saw:\n{output}")

        cases.add(f"kill -9 of the {other} end of a stream: status 12 at {name}", killed)

        def orphaned(host, guest, from_host=from_host, port=cases.port()):
            client, server = (host, guest) if from_host else (guest, host)
            command = f"exec connect orphan {server.address} {port}"
            serving = server.start(command, LIMIT)
            server.until_ready(serving, server.cm_test(port))
            asking = client.start(command + " client", LIMIT)
            ours, theirs = (asking, serving) if from_host else (serving, asking)
            host.until_printed(ours, "talked")
            host.kill(ours)
            output = theirs.succeed()
            if not output.endswith("status 12\nno event\n"):
                raise Failed(f"the kernel's end saw:\n{output}")

        end = "client" if from_host else "server"
        cases.add(f"kill -9 of ferroce as the {end} of a connection: status 12 at rxe", orphaned)

    def ended(host, guest, port=cases.port()):
        command = f"exec connect killed {guest.address} {port}"
        serving = guest.start(command, LIMIT)
        guest.until_ready(serving, guest.cm_test(port))
        asking = host.start(command + " client", LIMIT)
        guest.until_printed(serving, "talked")
        guest.kill(serving)
        if "DISCONNECTED" not in asking.succeed():
            raise Failed(f"the client saw:\n{asking.output}")

    cases.add("kill -9 of the rxe end of a connection: ferroce disconnects", ended)


def impaired(cases):
    """The same on a bad link: what Ferroce sends or receives is lost, late, repeated, damaged."""
    specs = ["loss=2%", "reorder=3%:2ms", "duplicate=3%", "loss=1%,reorder=1%:2ms,duplicate=1%"]
    perftest = "-d {device} -x 1 -F -p {port} -n 50 -s 16384"
    programs = [
        ("bytes rc:16, MTU 1024", "bytes rc:16 1024 some {port}", " {address}", False),
        ("ib_write_bw", f"ib_write_bw {perftest}", " {address}", False),
        ("ib_read_bw", f"ib_read_bw {perftest}{OUTSTANDING}", " {address}", False),
        ("connect: data", "connect data {address} {port}", " client", True),
    ]
    for direction in ["egress", "ingress"]:
        for spec in specs:
            for name, command, client, by_cm in programs:
                cases.pair(
                    f"{name} with {direction} {spec}", command, command + client, by_cm=by_cm,
                    # rxe completes a receive before it acknowledges it, and does not acknowledge it at
                    # all if its program disconnects in between.
                    tries=2 if by_cm else 1, limit=DISCONNECT_LIMIT if by_cm else IMPAIRED_LIMIT,
                    link=f"{direction} {spec}",
                )
    # Each end sends, so what Ferroce sends and what it receives are spoilt in turn.
    for kind, mtu in [("uc", 1024), ("ud", 4096)]:
        command = f"unreliable {kind} {mtu} {{port}}"
        cases.pair(f"unreliable {kind}", command, command + " {address}")
        for spec in specs:
            cases.pair(
                f"unreliable {kind} with {spec} both ways", command, command + " {address}",
                link=f"both {spec}",
            )

    def damaged(host, guest, port=cases.port()):
        def counts():
            ours = host.counters()
            # The kernel counts what it takes after the ICRC was found right, and UDP before.
            theirs = guest.start(KERNEL_COUNTS, LIMIT).succeed().split()
            taken, arrived = int(theirs[0]), int(theirs[theirs.index("InDatagrams") + UDP_FIELDS])
            return ours["impair_corrupted"], ours["rx_icrc_encapsulated"], arrived - taken

        before = counts()
        host.call("impair", "set", host.device, "corrupt=5%", "--direction", "both")
        try:
            command = "bytes rc 1024 some {port}"
            run_pair(guest, host, command, command + " {address}", port, False, IMPAIRED_LIMIT, None)
        finally:
            host.call("impair", "clear", host.device)
        after = counts()
        made, ours, theirs = (now - then for now, then in zip(after, before))
        # Where the damage hits a header, a packet may be dropped for that before its ICRC is looked
        # at; and a packet that outlives its queue pair is dropped undamaged.
        if not (ours and theirs and 0.8 * made <= ours + theirs <= 1.2 * made):
            raise Failed(f"of {made} damaged packets Ferroce dropped {ours}, the kernel {theirs}")

    cases.add("packets with a wrong ICRC are dropped and counted by both", damaged, alone=True)


def every_case():
    """All of them, in the order in which they run."""
    cases = Cases()
    ibverbs_utils(cases)
    own_programs(cases)
    rdmacm_utils(cases)
    rsockets(cases)
    perftest(cases)
    impaired(cases)
    return cases.all
