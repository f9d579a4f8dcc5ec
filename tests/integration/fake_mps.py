#!/usr/bin/env python3
"""Stands in for nvidia-cuda-mps-control, which needs a GPU: `-d` starts a control daemon, without
it commands of standard input are carried out (daemon/server/mps.h has NVIDIA's documentation).

Which servers there are with which clients is in the file `servers` of the pipe directory, a JSON
{server PID: [client PID, ...]}; the daemon leaves its environment in the file `environment`. Called
by a name that ends in -refuses, -hangs, -dies or -mumbles it does that.
"""

import json
import os
import pathlib
import socket
import sys
import time

PIPES = pathlib.Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOGS = pathlib.Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
PID_FILE = PIPES / "nvidia-cuda-mps-control.pid"
BEHAVIOUR = pathlib.Path(sys.argv[0]).name.rpartition("-")[2]


def servers():
    try:
        return json.loads((PIPES / "servers").read_text())
    except FileNotFoundError:
        return {}


def lives():
    try:
        os.kill(int(PID_FILE.read_text()), 0)
        return True
    except (OSError, ValueError):
        return False


def answer(command):
    """What the daemon says to one command; None ends it."""
    word, *rest = command.split()
    if BEHAVIOUR == "mumbles":
        return "not what you think\n"
    if word == "get_server_list":
        return "".join(f"{pid}\n" for pid in servers())
    if word == "get_client_list":
        return "".join(f"{pid}\n" for pid in servers().get(rest[0], []))
    if word == "get_default_active_thread_percentage":
        return os.environ.get("FAKE_MPS_PERCENTAGE", "100.0") + "\n"
    return None if word == "quit" else f"Unknown command {word}\n"


def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as peer:
            for command in peer:
                text = answer(command)
                if text is None:
                    while any(servers().values()):
                        time.sleep(0.01)
                    PID_FILE.unlink()  # the socket stays, as NVIDIA's does
                    return
                peer.write(text)
                peer.flush()


def start():
    if BEHAVIOUR == "refuses":
        sys.exit("Unable to open device\n")
    if BEHAVIOUR == "hangs":
        time.sleep(60)
    if lives():
        print("An instance of this daemon is already running")
        sys.exit(1)
    path = PIPES / "control"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    if BEHAVIOUR == "dies" or os.fork() != 0:
        os._exit(0)
    os.setsid()
    PID_FILE.write_text(str(os.getpid()))
    (PIPES / "environment").write_text(json.dumps(dict(os.environ)))
    with open(LOGS / "control.log", "a") as log:
        log.write(f"[x Control {os.getpid()}] Starting control daemon using socket {path}\n")
    serve(listener)


def command_line():
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(PIPES / "control"))
    except OSError:
        print("Cannot find MPS control daemon process")
        sys.exit(1)
    connection.sendall(sys.stdin.read().encode())
    connection.shutdown(socket.SHUT_WR)
    while part := connection.recv(4096):
        sys.stdout.write(part.decode())


if __name__ == "__main__":
    start() if sys.argv[1:2] == ["-d"] else command_line()
