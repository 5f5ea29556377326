"""A shell beside the guest, in which `guest COMMAND` runs a command there."""

import os
import socket
import subprocess
import sys
import tempfile
import threading

LIMIT = 3600  # seconds that a command of the guest may take
SOCKET = "RXE_GUEST"


def _answer(guest, connection):
    with connection:
        stream = connection.makefile("rw", encoding="utf-8")
        status, output = guest.start(stream.readline().strip(), LIMIT).wait()
        stream.write(f"{status}\n{output}")
        stream.flush()


def _serve(guest, listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(guest, connection), daemon=True).start()


def shell(host, guest, command):
    """Runs `command`, or the user's shell; returns its exit status."""
    with tempfile.TemporaryDirectory(prefix="ferroce-rxe-") as directory:
        path = os.path.join(directory, "guest.socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        threading.Thread(target=_serve, args=(guest, listener), daemon=True).start()
        program = os.path.join(directory, "guest")
        with open(program, "w", encoding="utf-8") as file:
            here = os.path.realpath(__file__)
            file.write(f'#!/bin/sh\nexec {sys.executable} "{here}" "$*"\n')
        os.chmod(program, 0o755)
        environment = dict(host.environment)
        environment[SOCKET] = path
        search = [directory, os.path.dirname(host.ferroce), environment["PATH"]]
        environment["PATH"] = ":".join(search)
        arguments = command or [os.environ.get("SHELL", "/bin/sh")]
        return subprocess.run(arguments, env=environment, check=False).returncode


def main():
    """The command `guest`."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ[SOCKET])
    stream = connection.makefile("rw", encoding="utf-8")
    stream.write(sys.argv[1].replace("\n", ";") + "\n")
    stream.flush()
    status = int(stream.readline())
    sys.stdout.write(stream.read())
    sys.exit(status)


if __name__ == "__main__":
    main()
