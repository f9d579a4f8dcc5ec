#!/usr/bin/env python3
"""How frameworks make worker processes, and what heddle sees of each: on the simulated GPU.

    prefork.py        a row for each way: workers that compute right, and are clients of heddled

gunicorn and uvicorn are run where Python finds them.
"""

import importlib.util
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from subprocess import PIPE, Popen

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "quickstart")]
from decoder import Demo  # noqa: E402

WORKERS = 2
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]


def line_of(decoder=None):
    """What a worker says of itself: the tokens that its CUDA context makes, or the error."""
    try:
        tokens = str(list((decoder or Demo()).generate(7, 8)))
    except RuntimeError as error:
        tokens = str(error)
    return json.dumps({"pid": os.getpid(), "tokens": tokens})


def tell(decoder=None):
    os.write(1, f"{line_of(decoder)}\n".encode())  # whole, whoever else writes
    time.sleep(60)


def fork(work, *arguments):
    for _ in range(WORKERS):
        if os.fork() == 0:
            work(*arguments)
    time.sleep(60)


def fork_after_import():
    Demo.load()
    fork(tell)


def fork_after_cuda():
    fork(tell, Demo())


def with_processes(method):
    def start():
        context = multiprocessing.get_context(method)
        for _ in range(WORKERS):
            context.Process(target=tell, daemon=True).start()
        time.sleep(60)
    return start


WAYS = {"fork, then CUDA": lambda: fork(tell), "import the driver, then fork": fork_after_import,
        "CUDA, then fork": fork_after_cuda,
        **{f"multiprocessing, {m}": with_processes(m) for m in ("fork", "spawn", "forkserver")}}


# ---- servers: each worker makes its context at its first request ----

def wsgi(environ, start_response):
    start_response("200 OK", [])
    return [mine().encode()]


async def asgi(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": mine().encode()})


def mine():
    global LINE
    LINE = LINE or line_of()
    return LINE


LINE = ""
SERVERS = {
    "gunicorn": ["-m", "gunicorn", "-w", str(WORKERS), "-b", f"127.0.0.1:{PORT}", "prefork:wsgi"],
    "gunicorn, --preload": ["-m", "gunicorn", "--preload", "-w", str(WORKERS), "-b",
                            f"127.0.0.1:{PORT}", "prefork:wsgi"],
    "uvicorn, --workers": ["-m", "uvicorn", "--workers", str(WORKERS), "--port", str(PORT),
                           "--log-level", "error", "prefork:asgi"]}


def asked(process):
    """Lines of a server's workers, one each."""
    found, deadline = {}, time.monotonic() + 20
    while len(found) < WORKERS and time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=5) as reply:
                line = json.load(reply)
            found[line["pid"]] = line
        except OSError:
            time.sleep(0.05)
    return list(found.values())


def run(stage, where, way, managed):
    """What workers made in this way say, and how many of those that compute are clients."""
    command = [sys.executable, *SERVERS.get(way, [__file__, way])]
    env = where.env | {"PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    if managed:
        command = [stage.HEDDLE, "run", "--quiet", "--sim", "--class=latency", f"--label={way}",
                   "--", *command]
    else:
        env["LD_LIBRARY_PATH"] = str(stage.SIM)
    with open(where.folder / "prefork.log", "ab") as log:
        process = Popen(command, env=env, text=True, stdout=PIPE, stderr=log,
                        start_new_session=True)
    try:
        lines = (asked(process) if way in SERVERS else
                 [json.loads(process.stdout.readline()) for _ in range(WORKERS)])
        pids = {line["pid"] for line in lines if line["tokens"].startswith("[")}
        deadline = time.monotonic() + 5  # a busy heddled takes a program a moment later
        while True:
            attached = pids & {client["pid"] for client in where.heddle("ps")["clients"]}
            if not managed or attached == pids or time.monotonic() > deadline:
                break
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return [line["tokens"] for line in lines], len(attached)


def measure(stage, where):
    """Yields each way with: how many workers compute bare, under heddle, how many are attached, and
    why those that do not."""
    known = None
    for way in (*WAYS, *SERVERS):
        if way in SERVERS and not importlib.util.find_spec(SERVERS[way][1]):
            continue
        bare, _ = run(stage, where, way, managed=False)
        tokens, attached = run(stage, where, way, managed=True)
        known = known or bare[0]
        yield way, {"bare": bare.count(known), "managed": tokens.count(known),
                    "attached": attached,
                    "why": "; ".join({said for said in tokens if said != known and said})}


def main():
    import stage
    with tempfile.TemporaryDirectory() as folder:
        where = stage.Stage(Path(folder), "mps")
        try:
            where.start_daemon("gapfill")
            print("| simulated GPU: workers are made by | compute bare | under heddle | attached |")
            print("|---|---:|---:|---:|")
            for way, found in measure(stage, where):
                why = f" ({found['why']})" if found["why"] else ""
                print(f"| {way} | {found['bare']} of {WORKERS} | {found['managed']} of {WORKERS}"
                      f"{why} | {found['attached']} |", flush=True)
        finally:
            where.close()


if __name__ == "__main__":
    WAYS[sys.argv[1]]() if sys.argv[1:] else main()
