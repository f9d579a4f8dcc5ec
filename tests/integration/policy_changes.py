#!/usr/bin/env python3
"""How an administrator changes a policy, on the simulated GPU: checked, tried for a while, kept,
rolled back, shown, compared and explained; and that a restart forgets none of it."""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402


def heddle(where, *arguments, code=0):
    done = subprocess.run([stage.HEDDLE, *map(str, arguments)], env=where.env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def policy(where):
    return where.heddle("status")["policy"]


def history(where):
    return where.heddle("policy", "history")["generations"]


def check_generations(where):
    active = where.policies / "active.lua"
    first = policy(where)
    assert first["loaded_by"]["how"] == "config" and first["generation"] == 1, first
    said = heddle(where, "policy", "load", "active", "--for", "1h", "--wait", "0")
    assert re.search(r"is live\n  back to generation 1 in 3\d{3} s, unless", said), said
    trial = policy(where)
    assert trial["trial"]["back_to"] == 1 and 3500 < trial["trial"]["left_s"] <= 3600, trial
    assert trial["loaded_by"]["uid"] == os.geteuid() and trial["loaded_by"]["pid"] > 0, trial
    said = heddle(where, "status")
    assert re.search(r"generation 2 by load of uid \d+ pid \d+\n", said), said
    assert re.search(r"back to generation 1 in 3\d{3} s, unless heddle policy keep\n", said), said
    said = heddle(where, "policy", "set", "gapfill", "quantum_us=333", "--wait", "0")
    assert said.startswith("policy gapfill is live (quantum_us=333)\n"), said
    assert policy(where)["trial"]["back_to"] == 1, "a parameter ends no trial"
    assert "-- quantum_us = 333 by heddle policy set\n" in heddle(where, "policy", "show")
    heddle(where, "policy", "keep")
    assert policy(where)["trial"] is None
    heddle(where, "policy", "keep", code=1)
    heddle(where, "policy", "set", "gapfill", "--reset", "--wait", "0")
    assert "333" not in heddle(where, "policy", "show")
    assert "nobody has set" in heddle(where, "policy", "set", "gapfill", "--reset", "quantum_us",
                                      code=1)
    heddle(where, "policy", "set", "gapfill", code=2)

    # Saved: live. Rolled back: it stands, and the file is known to differ.
    text = active.read_text()
    active.write_text(text + "-- saved\n")
    stage.wait_until(lambda: policy(where)["loaded_by"]["how"] == "save", 10, "the save is live")
    assert heddle(where, "policy", "diff") == ""
    heddle(where, "policy", "rollback", "--wait", "0")
    said = heddle(where, "status")
    assert f"the file {active} differs from what runs: heddle policy diff\n" in said, said
    diff = heddle(where, "policy", "diff", code=1)
    assert diff.endswith("+-- saved\n") and "+++ file: " in diff, diff
    assert policy(where)["hash"] == first["hash"], "what ran before the save"
    (where.policies / "other.lua").write_text("-- nothing of ours")  # no reason to undo it
    heddle(where, "policy", "load", "nowhere", code=1)
    heddle(where, "policy", "rollback", "77", code=1)
    heddle(where, "policy", "load", "active", "--for", "0.2s", "--wait", "0")
    stage.wait_until(lambda: policy(where)["loaded_by"]["how"] == "revert", 10, "it reverted")
    assert policy(where)["hash"] == first["hash"]


def check_restart(where):
    before = history(where)
    where.stop_daemon()
    where.respawn_daemon()
    after = history(where)
    assert [g["generation"] for g in after] == list(range(1, len(before) + 2)), after
    assert after[len(before) - 1]["ended"] == "heddled ended", after
    assert after[:len(before) - 1] == before[:-1], "nothing is forgotten"
    said = heddle(where, "policy", "rollback", "1", "--wait", "0")
    assert said == "policy gapfill is live, as generation 1 was\n", said
    assert policy(where)["hash"] == before[0]["hash"]
    listed = heddle(where, "policy", "history")
    running = r"^\* \d+  \S+  gapfill  \w+  rollback, as generation 1 was, uid \d+ pid \d+$"
    assert re.search(running, listed, re.M), listed


def check_explain(where):
    demos = [where.start_demo(role, "demo", 1, 6, 0, managed=True) for role in stage.CLASSES]

    def waited():
        clients = {c["label"]: c for c in where.heddle("ps")["clients"]}
        if len(clients) < 2:
            return None
        told = where.heddle("explain", "batch")["devices"][0]
        held = [w for w in told["past"] if w["held"] and w["held"]["by"] == "policy"]
        return (clients, told, held) if len(held) > 3 else None

    clients, told, held = stage.wait_until(waited, 20, "waits of batch")
    assert len(told["past"]) <= 10 and told["waited"] <= told["granted"], told
    for wait in held:
        assert wait["held"]["reason"] and wait["held"]["hook"] == "dispatch", wait
        assert wait["held"]["generation"] == told["generation"], wait
        assert wait["waited_us"] > 0 and wait["kernel"], wait
        assert wait["let_go_by"] in ("policy", "built-in"), wait
    text = heddle(where, "explain", clients["batch"]["pid"])
    assert re.search(r"held by gapfill, generation \d+: .+ \(gap .+, in flight .+ waiting\)", text)
    assert "let go by the policy: " in text, text
    print(text)
    top = heddle(where, "explain", "latency")
    assert "0 grants, 0 of them after a wait\n  waits for nothing now" in top, top
    assert "not the PID" in heddle(where, "explain", "nobody", code=1)
    for demo in demos:
        demo.finish()


EAGER = """return policy {
  name = "eager", api = 1, version = "1.0.0",
  params = { worse = { type = "int", min = 0, max = 1, default = 0, doc = "errs at each ask" } },
  hooks = {
    client_init = function() return GATE end,
    client_active = function() return GATE end,
    enqueue = function(k, p)
      if p.worse == 1 then error("on purpose") end
      return RUN
    end,
  },
}
"""


def told(where):
    return where.heddle("policy", "shadow")


def batch_of(shadow):
    clients = [c for d in shadow["devices"] for c in d["clients"] if c["label"] == "batch"]
    return clients[0] if clients else None


def check_shadow(where):
    for arguments in ((), ("--stop",)):
        heddle(where, "policy", "shadow", *arguments, code=1)
    heddle(where, "policy", "promote", code=1)
    live = policy(where)
    eager = where.folder / "eager.lua"
    eager.write_text(EAGER)
    assert "runs beside gapfill" in heddle(where, "policy", "shadow", eager)
    assert "device 0, " in heddle(where, "policy", "shadow")
    demos = [where.start_demo(role, "demo", 1, 10, 0, managed=True) for role in stage.CLASSES]
    seen = stage.wait_until(lambda: (b := batch_of(told(where))) and b["sooner"] > 20 and b, 20,
                            "launches of batch that the candidate would have run")
    assert seen["later"] == 0 and seen["unseen"] == 0, seen
    assert seen["candidate"]["p50_us"] < seen["live"]["p50_us"] / 5, seen
    shadow = told(where)
    assert 0 < shadow["devices"][0]["share"] < 0.05 and not shadow["ended"], shadow
    text = heddle(where, "policy", "shadow")
    assert re.search(r"^\d+ batch +Q9 +\d+ .*gate$", text, re.M), text
    assert "us each" in text, text
    print(text)
    now = policy(where)
    assert (now["generation"], now["faults"]) == (live["generation"], 0), now

    # Its own fault ends it, and not the live policy.
    broken = where.folder / "broken.lua"
    broken.write_text(EAGER.replace("p.worse == 1", "p.worse == 0"))
    subprocess.run([stage.HEDDLE, "policy", "shadow", broken], env=where.env,  # at once, or soon
                   capture_output=True, timeout=60)
    ended = stage.wait_until(lambda: told_of_end(where), 10, "the candidate's end")
    assert "on purpose" in ended and "error in enqueue: broken.lua:" in ended, ended
    heddle(where, "policy", "promote", code=1)
    assert policy(where)["faults"] == 0

    heddle(where, "policy", "shadow", eager)
    heddle(where, "policy", "promote", "--slowdown", "99", "--watch", "1h", "--wait", "0")
    now = policy(where)
    assert now["name"] == "eager" and now["loaded_by"]["how"] == "promote", now
    assert now["trial"]["promoted"] and now["trial"]["back_to"] == live["generation"], now
    assert "watched for 3" in heddle(where, "status")
    assert "it has ended: promoted" in heddle(where, "policy", "shadow")
    subprocess.run([stage.HEDDLE, "policy", "set", "eager", "worse=1", "--wait", "0"],
                   env=where.env, check=True, capture_output=True)
    stage.wait_until(lambda: policy(where)["name"] == "gapfill", 10, "it goes back by itself")
    now = policy(where)
    assert now["hash"] == live["hash"] and "eager.lua: " in now["error"], now
    for demo in demos:
        demo.finish()

    # So do slow runs: beside kernels that nothing holds back, after some alone.
    demos = [where.start_demo("latency", "slow", 1, 8, 0, managed=True)]
    stage.wait_until(lambda: len(where.heddle("ps")["clients"]) == 1, 10, "the first")
    demos.append(where.start_demo("batch", "slow", 1, 7, 0, managed=True))
    stage.wait_until(lambda: len(where.heddle("ps")["clients"]) == 2, 10, "the second")
    slow = where.folder / "slow.lua"  # the other's parameter was set for good
    slow.write_text(EAGER.replace("eager", "slow"))
    heddle(where, "policy", "shadow", slow)
    heddle(where, "policy", "promote", "--slowdown", "1.001", "--wait", "0")
    stage.wait_until(lambda: policy(where)["name"] == "gapfill", 10, "it goes back by itself")
    how = policy(where)["loaded_by"]["how"]
    assert re.fullmatch(r"rolled back by itself: runs took \d+\.\d+ times what they take alone, "
                        r"over 1\.00", how), how
    said = heddle(where, "policy", "rollback", "--wait", "0", code=1)
    assert "no other generation ran before generation 1 that was not thrown out" in said, said
    assert policy(where)["name"] == "gapfill", "and so what was thrown out does not come back"
    for demo in demos:
        demo.finish()


def check_stall(where):
    """One that holds everybody on an idle GPU is named, and every launch goes all the same."""
    hold = where.folder / "hold.lua"
    gated = "client_init = function() return GATE end, client_active = function() return GATE end,"
    text = setting.HOLD.replace("enqueue =", gated + "enqueue =")
    hold.write_text('queue.create("held")\n' + text)
    heddle(where, "policy", "load", hold, "--wait", "0")
    batch = where.start_demo("batch", "hold", 1, 5, 0, managed=True)
    stage.wait_until(lambda: "the policy said IDLE for" in heddle(where, "status"), 20, "the stall")
    said = heddle(where, "policy", "load", hold, "--wait", "20", code=1)
    assert "it is live and lets nothing go from an idle GPU: 1 launches stalled" in said, said
    stalls = where.heddle("status")["devices"][0]["stalls"]
    assert stalls["policy"] > 0 and stalls["last"]["by"] == "policy", stalls
    assert 900 < stalls["last"]["waited_us"] / 1e3 < 2000, stalls
    assert re.search(r'^heddle_gpu_stalls_total{.*by="policy"} [1-9]', heddle(where, "metrics"),
                     re.M)
    assert policy(where)["faults"] == 0, "quotas do so on purpose"
    batch.finish()
    logged(where, r"event=stall .*by=policy policy=hold")


def logged(where, line):
    """A thread of heddled's writes its log later than heddled answers."""
    log = where.folder / "heddled.log"
    stage.wait_until(lambda: re.search(line, log.read_text()), 20, f"{line} in the log")


def told_of_end(where):
    done = subprocess.run([stage.HEDDLE, "policy", "shadow"], env=where.env, capture_output=True,
                          text=True, timeout=60)
    return done.stdout if done.returncode == 1 and "it has ended" in done.stdout else None


def check_a_fault(where):
    """One fault quarantines nothing, and whoever loads the policy is told."""
    once = where.folder / "once.lua"
    once.write_text('local n = 0\nreturn policy { name = "once", api = 1, version = "1", hooks = {'
                    ' tick = function() n = n + 1 if n == 1 then error("on purpose") end end } }')
    demo = where.start_demo("batch", "once", 1, 3, 0, managed=True)
    stage.wait_until(lambda: where.heddle("ps")["clients"], 10, "the demo")
    said = heddle(where, "policy", "load", once, "--wait", "1", code=1)
    assert "policy once is live" in said and "it faulted 1 times" in said, said
    demo.finish()


def check(where):
    assert heddle(where, "policy", "check", stage.POLICIES / "gapfill.lua") == ""
    for arguments in (("history",), ("rollback",), ("keep",), ("show",), ("diff",), ("shadow",),
                      ("promote",)):
        heddle(where, "policy", *arguments, code=3)
    heddle(where, "explain", "1", code=3)
    where.start_daemon("gapfill")
    check_generations(where)
    check_restart(where)
    check_explain(where)
    check_shadow(where)
    check_a_fault(where)
    check_stall(where)
    logged(where, r"event=policy_live .* generation=2 how=load uid=\d+ pid=\d+")
    logged(where, "event=policy_kept")
    assert "state_not_written" not in (where.folder / "heddled.log").read_text()
    state = json.loads((where.sockets / "history.json").read_text())
    assert state[0]["content"]["text"].startswith("-- gapfill.lua"), "the text is kept"


where = setting.fresh_stage("policy_changes")
for left in where.folder.glob("*.log"):
    left.unlink()
setting.run(lambda: check(where), where)
