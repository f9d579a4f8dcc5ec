#!/usr/bin/env python3
"""heddle record on the simulated GPU, from an installed tree: what it writes is shown, drawn, and
decides the same when it is replayed; who may not, and what cannot be, is told in one line."""

import json
import os
import pathlib
import signal
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
    return done


def check(where):
    trace, other = where.folder / "t.trace", where.folder / "other.trace"
    for left in (trace, other):
        left.unlink(missing_ok=True)
    refused = heddle(where, "record", trace, code=3)
    assert refused.stderr.count("\n") == 1 and "no daemon" in refused.stderr, refused.stderr
    assert not trace.exists(), "what was there would be lost"
    where.start_daemon("gapfill")
    recorder = subprocess.Popen([stage.HEDDLE, "record", trace], env=where.env,
                                stdout=subprocess.PIPE, text=True)
    stage.wait_until(lambda: trace.exists() and trace.stat().st_size, 20, "the trace's header")
    second = heddle(where, "record", other, code=1)
    assert "another heddle record runs" in second.stderr, second.stderr
    demos = [where.start_demo(role, "demo", 1, 1, 0, managed=True) for role in stage.CLASSES]
    for demo in demos:
        demo.finish()
    recorder.send_signal(signal.SIGHUP)  # its terminal is closed; as Ctrl-C
    said, _ = recorder.communicate(timeout=20)
    assert recorder.returncode == 0 and " records" in said, said
    assert trace.stat().st_mode & 0o777 == 0o600, "it names programs of all users"

    shown = json.loads(heddle(where, "trace", "show", trace, "--json").stdout)
    assert shown["lost"] == 0 and shown["policies"][0]["name"] == "gapfill", shown
    assert {c["priority"] for c in shown["clients"]} == {0, 9}, shown["clients"]
    for client in shown["clients"]:
        assert client["launches"] > 50 and client["duration"]["p50_us"] > 100, client
    replayed = json.loads(heddle(where, "replay", "--trace", trace, "--json").stdout)
    assert replayed["complete"] and replayed["differing"] == 0, replayed
    assert replayed["decisions"] > 50, replayed

    told = heddle(where, "trace", "replay", trace, code=2).stderr
    assert "heddle replay --trace" in told, told
    check_candidates(where, trace)
    check_places(where)

    scored = json.loads(heddle(where, "trace", "predict", trace, "--json").stdout)
    assert {t["launches"] for t in scored["tasks"]} == {c["launches"] for c in shown["clients"]}
    # The latency client is predicted as it was alone, and measured beside the other.
    batch = next(t for t in scored["tasks"] if t["name"] == "batch")
    assert batch["durations"]["error_p50_relative"] < 0.5, scored
    assert len(heddle(where, "trace", "predict", trace).stdout.splitlines()) == 3 * 8, "two and all"

    drawn = where.folder / "p.json"
    heddle(where, "trace", "export", trace, "--perfetto", drawn)
    events = json.loads(drawn.read_text())["traceEvents"]
    kinds = {event["ph"] for event in events}
    assert {"X", "M", "i", "C"} <= kinds, kinds
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events if event["ph"] == "X")

    cut = where.folder / "cut.trace"
    heddle(where, "trace", "cut", trace, cut, "--seconds", shown["seconds"] / 2)
    begun = json.loads(heddle(where, "trace", "show", cut, "--json").stdout)
    assert 0.4 < begun["seconds"] / shown["seconds"] <= 0.5, (begun["seconds"], shown["seconds"])
    assert begun["policies"] == shown["policies"], begun["policies"]
    replayed = json.loads(heddle(where, "replay", "--trace", cut, "--json").stdout)
    assert replayed["complete"] and replayed["differing"] == 0, replayed

    whole = trace.read_bytes()
    cut.write_bytes(whole[:len(whole) // 2])
    told = heddle(where, "replay", "--trace", cut, code=1).stderr
    assert told.count("\n") == 1 and "cut.trace: byte " in told and "truncated" in told, told
    told = heddle(where, "trace", "show", cut, "--json")
    assert "warning" in told.stderr and "truncated after" in told.stderr, told.stderr
    assert 0 < json.loads(told.stdout)["records"] < shown["records"], told.stdout
    heddle(where, "trace", "export", cut, "--perfetto", drawn)
    heddle(where, "trace", "cut", cut, other, "--seconds", 99)
    assert heddle(where, "trace", "show", other).stderr == "", "it has an end now"
    other.unlink()


def check_places(where):
    """A trace names programs of all users: it takes the place of a link, and waits for no pipe."""
    aim, link, pipe = (where.folder / name for name in ("aim", "link.trace", "pipe"))
    aim.write_text("somebody's")
    for left in (link, pipe):
        left.unlink(missing_ok=True)
    link.symlink_to(aim)
    heddle(where, "record", link, "--seconds", 0.1)
    assert aim.read_text() == "somebody's" and not link.is_symlink(), "the link was followed"
    heddle(where, "trace", "cut", link, aim, "--seconds", 1)
    os.mkfifo(pipe)
    told = heddle(where, "record", pipe, "--seconds", 0.1, code=1).stderr
    assert told.count("\n") == 1 and "something else than a file" in told, told
    told = heddle(where, "trace", "cut", link, pipe, "--seconds", 1, code=1).stderr
    assert "something else than a file" in told, told
    pipe.unlink()
    for never in ("nan", "inf", "-1", "1e300"):
        heddle(where, "record", link, f"--seconds={never}", code=2)


def check_candidates(where, trace):
    """Its own policy decides alike; one that runs everything would have run what waited."""
    def asked(file, *mode):
        return json.loads(heddle(where, "replay", "--trace", trace, file, *mode, "--json").stdout)

    def batch(answer):
        clients = answer["candidates"][0]["clients"]
        return next(c for c in clients if c["priority"] == 9)

    active = where.policies / "active.lua"
    own = asked(active)
    assert own["differing"] == 0 and batch(own)["alike"] > 20, own
    assert batch(own)["sooner"] + batch(own)["later"] + batch(own)["unseen"] == 0, own
    assert any("were leased" in lack for lack in own["lacks"]), own["lacks"]
    eager = where.folder / "eager.lua"
    eager.write_text("""return policy { name = "eager", api = 1, version = "1", hooks = {
      client_init = function() return GATE end, client_active = function() return GATE end,
      enqueue = function(k) return RUN end } }""")
    other = asked(eager, "--decisions")
    assert batch(other)["sooner"] > 20 and batch(other)["later"] == 0, other
    assert batch(other)["candidate"]["p99_us"] < batch(other)["live"]["p99_us"], other
    assert sum(s["sooner"] for s in other["slices"]) == batch(other)["sooner"], other["slices"]
    text = heddle(where, "replay", "--trace", trace, eager).stdout
    assert "recorded policy -> candidate" in text and "UNTIL ms" in text, text
    print(text)
    broken = where.folder / "broken.lua"
    broken.write_text(eager.read_text().replace("return RUN", "error('on purpose') return RUN"))
    told = heddle(where, "replay", "--trace", trace, broken, code=1).stderr
    assert "broken.lua:3: on purpose" in told, told

    played = asked(eager, "--virtual")
    assert played["recorded"] == "gapfill" and len(played["clients"]) == 2, played
    low = next(c for c in played["clients"] if c["priority"] == 9)
    assert low["candidate"]["wait_p99_us"] < low["recorded"]["wait_p99_us"], low
    assert low["candidate"]["runs"] >= low["recorded"]["runs"] > 0, low
    assert len(low["recorded"]["runs_in_time"]) == 10, low
    text = heddle(where, "replay", "--trace", trace, eager, "--virtual").stdout
    assert text.startswith("the GPU model's answer, "), text
    print(text)
    same = asked(active, "--virtual")["clients"][0]
    assert same["recorded"] == same["candidate"], "the same policy, the same to the bit"
    heddle(where, "replay", "--trace", trace, "--virtual", code=2)


def main():
    where = setting.fresh_stage("record")
    setting.run(lambda: check(where), where)


if __name__ == "__main__":
    main()
