#!/usr/bin/python3
"""RoCEv2 packets made or checked by Scapy, an implementation independent of ferroce.

    scapy_packets.py generate          print packets as JSON; always the same ones
    scapy_packets.py check < FILE      recompute the ICRC of each packet of a JSON file

Scapy's RoCE layer computes the ICRC over IPv4 only. Over IPv6 the fields are masked here, by
Scapy's IPv6 layer, and zlib computes the CRC.

Debian: apt-get install python3-scapy
"""

import json
import logging
import random
import sys
import zlib

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy import VERSION
from scapy.contrib.roce import AETH, BTH, cnp
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

PORT = 4791

# Extension headers by opcode, and whether payload follows. Written out by hand on purpose.
IMM, RETH, AETH_, ATOMIC, ATOMIC_ACK, IETH, DETH, XRC = (
    "imm", "reth", "aeth", "atomic", "atomic_ack", "ieth", "deth", "xrceth")
OPCODES = {
    0x00: ([], True), 0x01: ([], True), 0x02: ([], True), 0x03: ([IMM], True),
    0x04: ([], True), 0x05: ([IMM], True), 0x06: ([RETH], True), 0x07: ([], True),
    0x08: ([], True), 0x09: ([IMM], True), 0x0a: ([RETH], True), 0x0b: ([RETH, IMM], True),
    0x0c: ([RETH], False), 0x0d: ([AETH_], True), 0x0e: ([], True), 0x0f: ([AETH_], True),
    0x10: ([AETH_], True), 0x11: ([AETH_], False), 0x12: ([AETH_, ATOMIC_ACK], False),
    0x13: ([ATOMIC], False), 0x14: ([ATOMIC], False), 0x16: ([IETH], True), 0x17: ([IETH], True),
    0x20: ([], True), 0x21: ([], True), 0x22: ([], True), 0x23: ([IMM], True),
    0x24: ([], True), 0x25: ([IMM], True), 0x26: ([RETH], True), 0x27: ([], True),
    0x28: ([], True), 0x29: ([IMM], True), 0x2a: ([RETH], True), 0x2b: ([RETH, IMM], True),
    0x64: ([DETH], True), 0x65: ([DETH, IMM], True),
    0xa0: ([XRC], True), 0xa1: ([XRC], True), 0xa2: ([XRC], True), 0xa3: ([XRC, IMM], True),
    0xa4: ([XRC], True), 0xa5: ([XRC, IMM], True), 0xa6: ([XRC, RETH], True), 0xa7: ([XRC], True),
    0xa8: ([XRC], True), 0xa9: ([XRC, IMM], True), 0xaa: ([XRC, RETH], True),
    0xab: ([XRC, RETH, IMM], True), 0xac: ([XRC, RETH], False), 0xad: ([AETH_], True),
    0xae: ([], True), 0xaf: ([AETH_], True), 0xb0: ([AETH_], True), 0xb1: ([AETH_], False),
    0xb2: ([AETH_, ATOMIC_ACK], False), 0xb3: ([XRC, ATOMIC], False),
    0xb4: ([XRC, ATOMIC], False), 0xb6: ([XRC, IETH], True), 0xb7: ([XRC, IETH], True),
}


def extension(rng, kind, fields):
    """Bytes of one extension header with random content; records the content in fields."""
    def number(name, length):
        value = rng.getrandbits(8 * length)
        fields[name] = value
        return value.to_bytes(length, "big")

    if kind == IMM:
        return number("imm", 4)
    if kind == RETH:
        return number("reth_va", 8) + number("reth_rkey", 4) + number("reth_length", 4)
    if kind == AETH_:
        fields["aeth_syndrome"], fields["aeth_msn"] = rng.getrandbits(8), rng.getrandbits(24)
        return bytes(AETH(syndrome=fields["aeth_syndrome"], msn=fields["aeth_msn"]))
    if kind == ATOMIC:
        return (number("atomic_va", 8) + number("atomic_rkey", 4)
                + number("atomic_swap_or_add", 8) + number("atomic_compare", 8))
    if kind == ATOMIC_ACK:
        return number("atomic_ack", 8)
    if kind == IETH:
        return number("ieth", 4)
    if kind == XRC:
        return b"\0" + number("xrceth", 3)
    assert kind == DETH
    return number("deth_qkey", 4) + b"\0" + number("deth_src_qp", 3)


def icrc_v6(packet):
    """ICRC of an IPv6 packet whose ICRC field is there but of no matter."""
    masked = IPv6(bytes(packet))
    masked.tc, masked.fl, masked.hlim = 0xff, 0xfffff, 0xff
    masked[UDP].chksum = 0xffff
    masked[BTH].fecn, masked[BTH].becn, masked[BTH].resv6 = 1, 1, 0x3f
    crc = zlib.crc32(b"\xff" * 8 + bytes(masked)[:-4])
    # Scapy writes the field big-endian, the wire has it little-endian.
    return int.from_bytes(crc.to_bytes(4, "little"), "big")


def seal(packet):
    """The bytes of a packet with the right ICRC."""
    packet = packet.copy()
    if IPv6 in packet:
        packet[BTH].icrc = 0
        packet[BTH].icrc = icrc_v6(packet)
    else:
        packet[BTH].icrc = None
    return bytes(packet)


def networks(rng):
    """IP layers of all kinds: name and a function that makes one."""
    tos = lambda: rng.getrandbits(8)
    ttl = lambda: rng.randrange(1, 256)
    addr = lambda: "10.%d.%d.%d" % tuple(rng.randrange(1, 255) for _ in range(3))
    addr6 = lambda: "2001:db8::%x:%x" % (rng.getrandbits(16), rng.getrandbits(16))
    v4 = lambda **kw: IP(src=addr(), dst=addr(), tos=tos(), ttl=ttl(), **kw)
    return {
        "v4-df-id0": lambda: v4(id=0, flags="DF"),
        "v4-df-id": lambda: v4(id=rng.randrange(1, 1 << 16), flags="DF"),
        "v4-id": lambda: v4(id=rng.randrange(1, 1 << 16), flags=0),
        "v6": lambda: IPv6(src=addr6(), dst=addr6(), tc=tos(), fl=rng.getrandbits(20), hlim=ttl()),
    }


def generate():
    rng = random.Random(4791)
    packets = []

    def add(name, ip, bth, rest, fields):
        checksum = rng.choice([None, 0]) if isinstance(ip, IP) else None
        udp = UDP(sport=rng.randrange(0xc000, 0x10000), dport=PORT, chksum=checksum)
        fields.update(opcode=bth.opcode, solicited=bth.solicited, mig_req=bth.migreq,
                      pad=bth.padcount, pkey=bth.pkey, fecn=bth.fecn, becn=bth.becn,
                      dest_qp=bth.dqpn, ack_req=bth.ackreq, psn=bth.psn)
        packets.append({"name": name, "hex": seal(ip / udp / bth / rest).hex(), "fields": fields})

    for opcode, (kinds, has_payload) in OPCODES.items():
        for network, ip in networks(rng).items():
            lengths = [0, rng.randrange(1, 64), rng.randrange(64, 160)] if has_payload else [0]
            for length in lengths:
                fields = {}
                payload = rng.getrandbits(8 * length).to_bytes(length, "big")
                pad = -length % 4
                header = b"".join(extension(rng, kind, fields) for kind in kinds)
                bit = lambda: rng.getrandbits(1)
                bth = BTH(opcode=opcode, solicited=bit(), migreq=bit(), padcount=pad,
                          pkey=rng.getrandbits(16), fecn=bit(), becn=bit(),
                          dqpn=rng.getrandbits(24), ackreq=bit(), psn=rng.getrandbits(24))
                rest = Raw(header + payload + b"\0" * pad)
                fields["payload"] = payload.hex()
                add("%02x-%s-%d" % (opcode, network, length), ip(), bth, rest, fields)
    for network, ip in networks(rng).items():
        packet = cnp(rng.getrandbits(24))
        bth, padding = packet.copy(), packet.payload
        bth.remove_payload()
        add("cnp-" + network, ip(), bth, padding, {"payload": ""})
    # A full path MTU each.
    for network, ip in networks(rng).items():
        payload = rng.getrandbits(8 * 1024).to_bytes(1024, "big")
        bth = BTH(opcode=0x07, migreq=1, dqpn=17, psn=0xffffff)
        add("mtu-" + network, ip(), bth, Raw(payload), {"payload": payload.hex()})
    # One packet a line, so that differences can be read.
    lines = ",\n".join(json.dumps(packet) for packet in packets)
    print('{"generator": "scapy %s", "packets": [\n%s\n]}' % (VERSION, lines))


def check():
    """For each {"name", "hex"}: the packet with the ICRC as Scapy computes it."""
    results = []
    for packet in json.load(sys.stdin)["packets"]:
        data = bytes.fromhex(packet["hex"])
        parsed = IPv6(data) if data[0] >> 4 == 6 else IP(data)
        if BTH not in parsed:
            sys.exit("%s: Scapy finds no BTH in %s" % (packet["name"], packet["hex"]))
        results.append({"name": packet["name"], "hex": seal(parsed).hex(),
                        "opcode": parsed[BTH].opcode, "psn": parsed[BTH].psn,
                        "dest_qp": parsed[BTH].dqpn})
    json.dump({"generator": "scapy " + VERSION, "packets": results}, sys.stdout)


if __name__ == "__main__":
    commands = {"generate": generate, "check": check}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]]()
