#!/usr/bin/env python3
"""A decoder behind HTTP: a front process that never touches CUDA, and workers that it forks.

    server.py [--workers N] [--model demo|torch] [--port P] [--import-first]

    POST /generate {"prompt": 7, "tokens": 8}   a line of JSON for each token, as it is there
    POST /sleep, POST /wake_up                  workers give up their memory, and take it again
    GET /health                                 {"workers": [PID...], "replaced": 0, ...}

Prints "listening PORT" once all workers are ready. The front forks each worker before it imports a
model, or with --import-first after it: either way CUDA is initialized in the worker alone. One that
dies is replaced, and its request begins anew in another: the client gets each token once. Requests
to a server that sleeps wait until it is awake.
"""

import argparse
import asyncio
import ctypes
import json
import os
import signal
import socket

TRIES = 3  # a request that ends workers is not to end them all
PR_SET_PDEATHSIG = 1


# ---- a worker ----

def work(model, channel):
    """Serves orders, one a line; the last answer to each is {"done": true}."""
    from decoder import MODELS
    decoder = MODELS[model]()

    def answer(**reply):
        channel.sendall(json.dumps(reply).encode() + b"\n")

    answer(done=True)
    for line in channel.makefile():
        order = json.loads(line)
        if order["do"] == "generate":
            for token in decoder.generate(order["prompt"], order["tokens"]):
                answer(token=token)
        else:
            getattr(decoder, order["do"])()
        answer(done=True)


def fork_worker(model):
    """(pid, the front's end of a socket pair)."""
    ours, channel = socket.socketpair()
    front = os.getpid()
    if (pid := os.fork()) > 0:
        channel.close()
        return pid, ours
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == front:
            kept = channel.fileno()  # connections of the front's are not to outlive it here
            os.closerange(3, kept)
            os.closerange(kept + 1, 4096)
            work(model, channel)
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        os._exit(1)


# ---- the front ----

class Died(Exception):
    """The worker, before it was done."""


class Worker:
    def __init__(self, pid):
        self.pid, self.alive = pid, False

    async def start(self, channel):
        self.reader, self.writer = await asyncio.open_connection(sock=channel)
        await self.obey()
        self.alive = True

    async def tokens(self, **order):
        """The answers to an order; Died if they end before it is done."""
        try:
            if order:
                self.writer.write(json.dumps(order).encode() + b"\n")
            while line := await self.reader.readline():
                reply = json.loads(line)
                if reply.get("done"):
                    return
                yield reply["token"]
        except ConnectionError:
            pass
        self.alive = False
        raise Died

    async def obey(self, **order):
        async for _ in self.tokens(**order):
            pass


class Front:
    """Workers that have nothing to do are in `idle`; those that sleep are in `asleep` alone, where
    no request finds them."""

    def __init__(self, options):
        self.model, self.count = options.model, options.workers
        self.idle, self.asleep, self.workers = asyncio.Queue(), None, {}
        self.turn = asyncio.Lock()  # sleep and wake up, one after the other
        self.replaced = self.waiting = 0

    async def spawn(self):
        pid, ours = fork_worker(self.model)
        worker = self.workers[pid] = Worker(pid)
        await worker.start(ours)
        if (held := self.asleep) is not None:
            await worker.obey(do="sleep")
            if held is self.asleep:
                held.append(worker)
                return
            await worker.obey(do="wake")  # the others were woken meanwhile
        self.idle.put_nowait(worker)

    async def replace(self):
        try:
            await self.spawn()
        except Died:
            pass  # reap() has another

    def reap(self):
        for pid in list(self.workers):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.workers.pop(pid).alive = False
                self.replaced += 1
                asyncio.get_running_loop().create_task(self.replace())

    async def free(self):
        while not (worker := await self.idle.get()).alive:
            pass
        return worker

    async def generate(self, prompt, tokens, send):
        sent = 0
        for _ in range(TRIES):
            self.waiting += 1
            worker, made = await self.free(), 0
            self.waiting -= 1
            try:
                async for token in worker.tokens(do="generate", prompt=prompt, tokens=tokens):
                    made += 1
                    if made > sent:  # else the one that died had sent it
                        sent = made
                        send({"token": token, "worker": worker.pid})
            except Died:
                continue
            self.idle.put_nowait(worker)
            return
        send({"error": f"{TRIES} workers died of it; their errors are on the server's stderr"})

    async def sleep(self):
        """Returns once each worker, after its request, has given up its memory."""
        async with self.turn:
            if self.asleep is not None:
                return
            held = []
            while sum(worker.alive for worker in held) < self.count:
                held.append(await self.free())
            self.asleep = held
            for worker in list(held):  # what replaces one meanwhile sleeps already
                await self.order(worker, "sleep")

    async def wake_up(self):
        async with self.turn:
            if self.asleep is None:
                return
            for worker in self.asleep:  # and what replaces one meanwhile
                await self.order(worker, "wake")
            held, self.asleep = self.asleep, None
            for worker in held:
                self.idle.put_nowait(worker)

    async def order(self, worker, what):
        try:
            if worker.alive:
                await worker.obey(do=what)
        except Died:
            pass  # spawn() puts what replaces it where it belongs

    def health(self):
        return {"workers": [pid for pid, worker in self.workers.items() if worker.alive],
                "replaced": self.replaced, "asleep": self.asleep is not None,
                "waiting": self.waiting}

    async def serve(self, reader, writer):
        try:
            method, path, _ = (await reader.readline()).decode().split()
            length = 0
            while line := (await reader.readline()).decode().strip():
                name, _, value = line.partition(":")
                length = int(value) if name.lower() == "content-length" else length
            await self.reply(f"{method} {path}", await reader.readexactly(length), writer)
            await writer.drain()
        except (ValueError, ConnectionError, asyncio.IncompleteReadError):
            pass  # no request, or the client is gone
        finally:
            writer.close()

    async def reply(self, what, body, writer):
        def head(status):
            writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\n"
                         "Content-Type: application/x-ndjson\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n".encode())

        def send(line):
            text = json.dumps(line) + "\n"
            writer.write(f"{len(text):x}\r\n{text}\r\n".encode())

        if what == "POST /generate":
            try:
                request = json.loads(body)
                prompt, tokens = int(request["prompt"]), int(request["tokens"])
            except (ValueError, KeyError, TypeError):
                head("400 Bad Request")
                send({"error": 'send {"prompt": 7, "tokens": 8}'})
            else:
                head("200 OK")
                await self.generate(prompt, tokens, send)
        elif what in ("POST /sleep", "POST /wake_up", "GET /health"):
            head("200 OK")
            if what != "GET /health":
                await (self.sleep if what == "POST /sleep" else self.wake_up)()
            send(self.health())
        else:
            head("404 Not Found")
            send({"error": f"{what}: server.py --help has what there is"})
        writer.write(b"0\r\n\r\n")


async def main(options):
    front, loop, stopped = Front(options), asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await asyncio.gather(*(front.spawn() for _ in range(options.workers)))
    loop.add_signal_handler(signal.SIGCHLD, front.reap)
    server = await asyncio.start_server(front.serve, "127.0.0.1", options.port)
    print("listening", server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()
    loop.remove_signal_handler(signal.SIGCHLD)
    for pid in front.workers:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", choices=("demo", "torch"), default="demo")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--import-first", action="store_true",
                        help="import the model, then fork; else the other way round")
    given = parser.parse_args()
    if given.import_first:
        import decoder
        decoder.MODELS[given.model].load()
    asyncio.run(main(given))
