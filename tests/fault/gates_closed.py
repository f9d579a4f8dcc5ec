#!/usr/bin/env python3
"""What may happen to a daemon, a policy and a program while 200 launches and more stand at closed
gates: gates_closed.py CLIENT. Each time the program ends within its bound, its values are right,
and nothing stays closed."""

import select
import signal
import subprocess
import sys
import time

import setting
import stage

QUEUED = 300
SOON_S = 20  # for what waits for nobody, on a busy machine; starvation comes much later
HELD_S = 0.3  # so long nothing moves while the gates are closed
STARVATION = "starvation_ms = 60000"  # beyond all that is waited for here

# Nobody has a window, and nobody runs.
HOLD = setting.HOLD.replace("hooks = {", """hooks = {
    client_init = function(c, p) return GATE end,
    client_active = function(c) return GATE end,""")
REFUSES = """
return policy {
  name = "refuses", api = 1, version = "1.0.0",
  hooks = { client_init = function(c, p) return REFUSE, "by the test" end },
}
"""
FAULTY = """
return policy {
  name = "faulty", api = 1, version = "1.0.0",
  hooks = {
    enqueue = function(k) error("on purpose") return RUN end,
    dispatch = function() error("on purpose") end,
  },
}
"""


class Client:
    """The program under heddle."""

    def __init__(self, where, program):
        self.process = subprocess.Popen(
            [stage.HEDDLE, "run", "--sim", "--quiet", "--class", "batch", "--", program],
            env=where.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def send(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self, seconds=SOON_S):
        """None if there is none in time."""
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        return self.process.stdout.readline().strip()

    def ask(self, command):
        self.send(command)
        answer = self.answer()
        setting.expect(answer is not None, f"{command}: no answer within {SOON_S} s")
        return answer

    def posted(self):
        return int(self.ask("posted"))

    def queue(self, launches, streams=1):
        """Launches until nothing moves any more."""
        self.ask(f"queue {launches} {streams}")
        last = -1
        while (now := self.posted()) != last:
            last = now
            time.sleep(HELD_S)
        return last

    def settle(self):
        setting.expect(self.ask("settle") == "right", "values are wrong")

    def end(self):
        self.process.stdin.close()
        self.ended()

    def ended(self):
        try:
            status = self.process.wait(SOON_S)
        except subprocess.TimeoutExpired as error:
            raise stage.StageError("the program does not end") from error
        setting.expect(status == 0, f"the program ended with {status}")


class Scene:
    """A daemon that holds everybody, and one client whose gates are closed."""

    def __init__(self, where, program, hold, gpu=STARVATION, warm="warm"):
        self.where = where
        where.start_daemon("priority", daemon="gates = true", gpu=gpu)
        self.client = Client(where, program)
        self.client.ask(warm)
        where.switch_policy(hold)

    def close(self, command="settle", launches=QUEUED, streams=1):
        """`command`, if there is any, waits for what is queued."""
        posted = self.client.queue(launches, streams)
        setting.expect(posted >= 2, f"{posted} launches did not wait for anybody")
        if command:
            self.client.send(command)
            setting.expect(self.client.answer(HELD_S) is None, f"{command} did not wait")
        return posted

    def opened(self):
        answer = self.client.answer()
        setting.expect(answer == "right", f"values: {answer} within {SOON_S} s")

    def finish(self, again=True):
        """Nothing is closed any more."""
        if again:
            self.client.ask("queue 20 2")
            self.client.settle()
        self.client.end()
        self.where.stop_daemon()


# ---- what happens to the daemon and its policy ----

def killed(scene):
    scene.where.daemon.kill()
    scene.where.daemon.wait()


def stopped(scene):
    scene.where.daemon.send_signal(signal.SIGSTOP)
    scene.opened()
    time.sleep(2)
    scene.where.daemon.send_signal(signal.SIGCONT)
    time.sleep(HELD_S)  # a heartbeat, and a look of the program's opener
    scene.close(launches=20 * QUEUED)  # it was idle: its first launches go
    scene.where.switch_policy("priority")


def replaced(scene):
    killed(scene)
    scene.where.save_policy("priority")
    scene.where.respawn_daemon()


def upgraded(scene):
    scene.where.stop_daemon()
    scene.where.save_policy("gapfill")
    scene.where.respawn_daemon()


def held_again(scene):
    """The next daemon holds as the last did; what the last one held goes all the same."""
    killed(scene)
    scene.where.respawn_daemon()
    scene.opened()
    scene.where.switch_policy("priority")
    scene.client.send("settle")


def bypassed(scene):
    scene.where.heddle("bypass", "on")
    scene.opened()
    scene.where.heddle("bypass", "off")
    posted = scene.client.queue(QUEUED)
    setting.expect(posted >= 2, f"{posted} launches after the bypass")
    scene.where.switch_policy("priority")
    scene.client.send("settle")


def switched(scene):
    scene.where.switch_policy("priority")


def promoted(scene, policy="priority"):
    scene.where.heddle("policy", "shadow", str(scene.where.policies / f"{policy}.lua"))
    scene.where.heddle("policy", "promote", "--wait", "0")


def fifo_promoted(scene):
    """Which counts what runs."""
    promoted(scene, "fifo")


def quarantined(scene):
    scene.where.switch_policy(setting.write_policy(scene.where, "faulty", FAULTY))


def refused(scene):
    scene.where.switch_policy(setting.write_policy(scene.where, "refuses", REFUSES))


def reprioritized(scene):
    """Other terms open nothing, and lose nothing."""
    config = scene.where.folder / "heddled.toml"
    config.write_text(config.read_text() + '\n[[rule]]\nname = "another"\npriority = 1\n')
    scene.where.daemon.send_signal(signal.SIGHUP)
    stage.wait_until(lambda: scene.where.heddle("ps")["clients"][0]["priority"] == 1, SOON_S,
                     "the new priority")
    scene.where.switch_policy("priority")


EVENTS = (killed, stopped, replaced, upgraded, held_again, bypassed, switched, promoted,
          fifo_promoted, quarantined, refused, reprioritized)


def to_the_daemon(scene, event, streams=1):
    posted = scene.close(streams=streams)
    began = time.monotonic()
    event(scene)
    scene.opened()
    took = time.monotonic() - began
    scene.finish()
    print(f"{event.__name__}: {posted} stood at gates; all done after {took:.2f} s")


# ---- what the program does ----

def a_call(scene, name):
    """It stands until the policy lets the client go."""
    scene.close(f"call {name}")
    switched(scene)
    setting.expect(scene.client.answer() == "done", f"{name} did not end")
    scene.client.settle()
    scene.finish()
    print(f"{name} waited, and ended")


def a_starving_call(scene):
    """Nobody lets the client go; each unit starves alone."""
    launches = 200  # some 25 units
    scene.close("call cuMemFree", launches)
    setting.expect(scene.client.answer(SOON_S) == "done", "cuMemFree starves for ever")
    scene.client.settle()
    scene.finish()
    print(f"cuMemFree behind {launches} launches ended by their starvation")


def let_go(scene, command):
    """How the launches of `command` were let go, the newest first."""
    scene.client.ask(command)
    scene.client.settle()
    past = scene.where.heddle("explain", str(scene.client.process.pid))["devices"][0]["past"]
    return ["stuck" if STUCK in wait["reason"] else wait["let_go_by"] for wait in past]


def a_stuck_kernel(scene):
    """It waits for a launch of another stream, with one of its own stream before. The core knows
    after that launch that the program has two streams: the one before starves once. What is let go
    for being stuck opens the gates, so that nothing waits behind it."""
    first = let_go(scene, "join meeting")
    setting.expect(first == ["stuck", STARVED, STARVED], first)
    again = HOLD.replace('"hold"', '"again"')  # which closes the gates that opened for the first
    scene.where.switch_policy(setting.write_policy(scene.where, "again", again))
    again = let_go(scene, "join meeting")
    setting.expect(again == ["stuck", STARVED] + first, again)
    scene.client.end()
    scene.where.stop_daemon()
    print("a kernel that waits for a later launch has it")


def a_join(scene, name):
    """Its units go one by one, as they starve. What is before the join is told to be over, so that
    it is not taken for a kernel that waits for what is behind."""
    past = let_go(scene, f"join {name}")
    setting.expect(past == [STARVED] * 3, f"{name}: {past}")
    scene.client.end()
    scene.where.stop_daemon()
    print(f"{name} counts as no stuck kernel")


def an_end(scene, name):
    """With closed gates, and at once."""
    scene.close(None)
    scene.client.send(f"leave {name}")
    scene.client.ended()
    stage.wait_until(lambda: not scene.where.heddle("ps")["clients"], SOON_S, "it is gone")
    scene.where.stop_daemon()
    print(f"{name} with closed gates")


def a_way_on(scene, name):
    """It waits for what is queued, as it does without heddle."""
    scene.close(f"leave {name}", launches=100)
    switched(scene)
    answer = scene.client.answer()
    setting.expect(answer == "right", f"{name}: {answer}")
    scene.finish(again=name != "reset")
    print(f"{name} with closed gates, and on")


def a_broken_ring(scene):
    """Who lies has no more to do with heddle, and its gates are open."""
    scene.close(None)
    scene.client.ask("lie ring")
    stage.wait_until(lambda: scene.where.heddle("status")["counters"]["let_go"], SOON_S, "let go")
    scene.client.settle()
    scene.finish()
    print("a client that is let go has open gates")


def all_queues(scene, event):
    """More streams stand at gates than the process has hardware queues: all of it stands."""
    to_the_daemon(scene, event, streams=8)


CALLS = ("cuMemFree", "cuMemFreeHost", "cuMemHostUnregister", "cuModuleLoadData", "cuArrayDestroy",
         "cuMipmappedArrayDestroy", "cuGreenCtxCreate")
ENDS = ("exit", "_exit", "exec")
WAYS_ON = ("destroy_context", "reset", "fork", "fork_and_launch", "thread")
JOINS = ("event", "value", "into_legacy", "of_legacy")
STARVING = "starvation_ms = 100"
STARVING_LATE = "starvation_ms = 1000"  # later than a long kernel counts as stuck
STARVED = "starvation bound"
STUCK = "takes far longer than predicted"


def main():
    program = sys.argv[1]
    wanted = sys.argv[2:]
    where = setting.fresh_stage("gates_closed")
    hold = setting.write_policy(where, "hold", HOLD)
    tests = [(event.__name__, to_the_daemon, event) for event in EVENTS]
    tests += [(name, a_call, name) for name in CALLS]
    tests += [(name, an_end, name) for name in ENDS]
    tests += [(name, a_way_on, name) for name in WAYS_ON]
    tests += [(f"all_queues_{event.__name__}", all_queues, event) for event in (killed, switched)]

    def body():
        for name, test, argument in tests:
            if wanted and name not in wanted:
                continue
            where.next_gpu(name)
            test(Scene(where, program, hold), argument)
        if not wanted or "starving" in wanted:
            where.next_gpu("starving")
            a_starving_call(Scene(where, program, hold, gpu=STARVING))
        for name in JOINS:
            if not wanted or name in wanted:
                where.next_gpu(name)
                a_join(Scene(where, program, hold, STARVING_LATE, "warm_long"), name)
        if not wanted or "stuck" in wanted:
            where.next_gpu("stuck")
            a_stuck_kernel(Scene(where, program, hold, STARVING_LATE, "warm_meeting"))
        if not wanted or "lie" in wanted:
            where.next_gpu("lie")
            a_broken_ring(Scene(where, program, hold))

    setting.run(body, where)


if __name__ == "__main__":
    main()
