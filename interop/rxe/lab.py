"""Two ends of a link: Ferroce on this machine, and a guest whose kernel has soft-RoCE.

Both are a `Side`, on which programs are started in the same way. The link is a tap device in a
network namespace that `enter_namespace` makes for this process and its children alone.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
HOST_ADDRESS = "10.8.0.1"
GUEST_ADDRESS = "10.8.0.2"
PREFIX = 24
MTU = 4200  # leaves room for packets of 4096 bytes
TAP = "tap0"
MEMORY_MB = 512
BOOT_PATIENCE = 300  # seconds, on a machine with other things to do
READY_PATIENCE = 30
JOB_LIMIT = 30  # for what takes no time
UNSHARED = "RXE_UNSHARED"


class Unavailable(Exception):
    """What this machine lacks."""


class Failed(Exception):
    """What went wrong in a case."""


def in_namespace():
    """Whether `enter_namespace` has started this process anew."""
    return os.environ.get(UNSHARED) == str(os.getpid())


def enter_namespace(argv):
    """Makes this process one of a network namespace with the tap device in it."""
    if not in_namespace():
        # unshare becomes this program again without another process: the number stays.
        os.environ[UNSHARED] = str(os.getpid())
        user = [] if os.geteuid() == 0 else ["-r"]
        os.execvp("unshare", ["unshare", *user, "-n", "--", *argv])
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        raise Unavailable(f"/dev/net/tun: {error.strerror}") from error
    for command in [
        "link set lo up",
        f"tuntap add {TAP} mode tap",
        f"address add {HOST_ADDRESS}/{PREFIX} dev {TAP}",
        f"link set {TAP} mtu {MTU} up",
        f"route add 224.0.0.0/4 dev {TAP}",
    ]:
        subprocess.run(["ip", *command.split()], check=True)


class Job:
    """A program that was started on a side."""

    def __init__(self, command):
        self.command = command
        self.ended = threading.Event()
        self.status = None
        self.output = ""

    def end(self, status, output):
        self.status, self.output = status, output
        self.ended.set()

    def wait(self):
        """Its exit status, and what it printed."""
        self.ended.wait()
        return self.status, self.output

    def succeed(self):
        """What it printed, if it ended well."""
        status, output = self.wait()
        if status != 0:
            raise Failed(f"{self.command} ended with {status}:\n{output.strip()}")
        return output


class Guest:
    """The guest: started by `boot`, ended by `stop`."""

    name = "rxe"
    device = "rxe0"
    address = GUEST_ADDRESS

    def __init__(self, directory, processors=2, accel="tcg,thread=multi"):
        self._socket_path = os.path.join(tempfile.mkdtemp(prefix="ferroce-rxe-"), "port")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._socket_path)
        listener.listen(1)
        self.console = os.path.join(directory, "console")
        cpu = "max" if accel.startswith("tcg") else "host"
        arguments = f"mtu={MTU} address={GUEST_ADDRESS}/{PREFIX}"
        command = ["qemu-system-x86_64", "-accel", accel, "-cpu", cpu]
        command += ["-m", str(MEMORY_MB), "-smp", str(processors)]
        command += ["-nodefaults", "-no-user-config", "-no-reboot", "-nographic"]
        command += ["-kernel", os.path.join(directory, "kernel/vmlinux")]
        command += ["-initrd", os.path.join(directory, "initramfs")]
        command += ["-append", "console=ttyS0 quiet panic=-1 nokaslr no_timer_check tsc=reliable "]
        command[-1] += f"mitigations=off {arguments}"
        command += ["-serial", f"file:{self.console}", "-monitor", "none"]
        command += ["-netdev", f"tap,id=link,ifname={TAP},script=no,downscript=no"]
        command += ["-device", "virtio-net-pci,netdev=link,romfile="]
        command += ["-chardev", f"socket,id=port,path={self._socket_path}"]
        command += ["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port"]
        self._qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        listener.settimeout(10)
        self._port, _ = listener.accept()
        listener.close()
        self._jobs = {}
        self._number = 0
        self._lock = threading.Lock()
        self._up = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def boot(self):
        """Waits until it takes jobs; returns the version of its kernel."""
        if not self._up.wait(BOOT_PATIENCE):
            with open(self.console, encoding="utf-8", errors="replace") as console:
                raise Failed(f"the guest does not come up:\n{console.read()[-2000:]}")
        return self.version

    def stop(self):
        self._qemu.kill()
        self._qemu.wait()
        shutil.rmtree(os.path.dirname(self._socket_path), ignore_errors=True)

    def start(self, command, limit):
        """Starts a shell command that is killed after `limit` seconds."""
        job = Job(f"{self.name}: {command}")
        with self._lock:
            self._number += 1
            job.number = self._number
            self._jobs[job.number] = job
            self._port.sendall(f"{job.number} {limit} {command}\n".encode())
        return job

    def kill(self, job):
        """Kills a program that was started with `exec`."""
        self.start(f"kill -KILL $(cat /tmp/{job.number}.pid)", JOB_LIMIT).wait()

    def until_ready(self, job, test):
        """Waits until a shell command succeeds, or the job ends."""
        pid = f"/tmp/{job.number}.pid"
        waits = f"until {test}; do [ -e {pid} ] || sleep 1; [ -e {pid} ] || exit 1; usleep 20000; done"
        status, _ = self.start(waits, READY_PATIENCE).wait()
        if status != 0:
            raise Failed(f"{job.command} does not listen: {job.output.strip()}")

    def tcp_test(self, port):
        return f"grep -q ':{port:04X} 0*:0000 0A' /proc/net/tcp /proc/net/tcp6"

    def cm_test(self, port):
        return f"rdma resource show cm_id | grep -q 'state LISTEN .*:{port} '"

    def group_test(self, group):
        return f"grep -qi {group} /proc/net/igmp"

    def until_printed(self, job, text):
        """Waits until a job has printed `text`."""
        self.until_ready(job, f"grep -q '{text}' /tmp/{job.number}")

    def _listen(self):
        stream = self._port.makefile("rb")
        for line in stream:
            head = line.decode().split()
            if head[0] == "up":
                self.version = head[1]
                self._up.set()
                continue
            number, status, length = map(int, head)
            output = stream.read(length).decode(errors="replace")
            with self._lock:
                job = self._jobs.pop(number)
            job.end(status, output)
        with self._lock:
            jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.end(-1, "the guest is gone")


class Host:
    """Ferroce on this machine, with a directory of devices of its own."""

    name = "ferroce"
    device = "fr0"
    address = HOST_ADDRESS

    def __init__(self, ferroce):
        self._directory = tempfile.mkdtemp(prefix="ferroce-rxe-")
        self._jobs = []
        self.ferroce = ferroce
        self.environment = dict(
            os.environ,
            FERROCE_DIR=self._directory,
            FERROCE_DEVICES=f"{self.device}@{self.address}",
        )

    def stop(self):
        for job in self._jobs:
            if not job.ended.is_set():
                self.kill(job)
                job.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self, command, limit):
        """Starts a shell command on the device, killed after `limit` seconds."""
        job = Job(f"{self.name}: {command}")
        job.printed = tempfile.NamedTemporaryFile(dir=self._directory, delete=False)
        job.process = subprocess.Popen(
            # Nothing outlives this program for long, even if that is killed.
            ["timeout", "-s", "KILL", str(limit), self.ferroce, "run", "--", "sh", "-c", command],
            env=self.environment,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=job.printed,
            stderr=subprocess.STDOUT,
            # A group of its own, to be killed; a session of its own the scheduler would weigh apart.
            process_group=0,
        )
        self._jobs.append(job)
        threading.Thread(target=self._attend, args=(job,), daemon=True).start()
        return job

    def _attend(self, job):
        status = job.process.wait()
        job.end(status, self.printed(job))

    def printed(self, job):
        """What it has printed so far."""
        with open(job.printed.name, encoding="utf-8", errors="replace") as printed:
            return printed.read()

    def kill(self, job):
        """Kills a job and all that it has started."""
        try:
            os.killpg(job.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def call(self, *arguments):
        """What `ferroce ARGUMENTS` prints."""
        command = [self.ferroce, *arguments]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            raise Failed(f"ferroce {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def counters(self):
        """The device's counters, by name."""
        [device] = json.loads(self.call("-j", "stat", "show", self.device))["devices"]
        return device["counters"]

    def until_ready(self, job, test):
        """Waits until a function is true, or the job ends."""
        end = time.monotonic() + READY_PATIENCE
        while not test():
            if job.ended.is_set() or time.monotonic() > end:
                raise Failed(f"{job.command} does not listen: {job.output.strip()}")
            time.sleep(0.02)

    def tcp_test(self, port):
        def listens():
            wanted = f":{port:04X}"
            for path in ["/proc/net/tcp", "/proc/net/tcp6"]:
                with open(path, encoding="ascii") as table:
                    for fields in map(str.split, table):
                        if fields[1].endswith(wanted) and fields[3] == "0A":
                            return True
            return False

        return listens

    def cm_test(self, port):
        def listens():
            rows = json.loads(self.call("-j", "res", "show", "cm_id"))["objects"]
            return any(row["state"] == "LISTEN" and row["src_port"] == port for row in rows)

        return listens

    def group_test(self, group):
        def is_member():
            with open("/proc/net/igmp", encoding="ascii") as table:
                return group.lower() in table.read().lower()

        return is_member

    def until_printed(self, job, text):
        """Waits until a job has printed `text`."""
        self.until_ready(job, lambda: text in self.printed(job))
