#!/usr/bin/env python3
"""heddle record on the simulated GPU, from an installed tree: what it writes is shown, drawn, and
decides the same when it is replayed; who may not, and what cannot be, is told in one line."""

import json
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
    replayed = json.loads(heddle(where, "trace", "replay", trace, "--json").stdout)
    assert replayed["complete"] and replayed["differing"] == 0, replayed
    assert replayed["decisions"] > 50, replayed

    scored = json.loads(heddle(where, "trace", "predict", trace, "--json").stdout)
    assert {t["launches"] for t in scored["tasks"]} == {c["launches"] for c in shown["clients"]}
    assert scored["all"]["durations"]["error_p50_relative"] < 0.5, scored["all"]
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
    replayed = json.loads(heddle(where, "trace", "replay", cut, "--json").stdout)
    assert replayed["complete"] and replayed["differing"] == 0, replayed

    whole = trace.read_bytes()
    cut.write_bytes(whole[:len(whole) // 2])
    told = heddle(where, "trace", "replay", cut, code=1).stderr
    assert told.count("\n") == 1 and "cut.trace: byte " in told and "truncated" in told, told
    told = heddle(where, "trace", "show", cut, "--json")
    assert "warning" in told.stderr and "truncated after" in told.stderr, told.stderr
    assert 0 < json.loads(told.stdout)["records"] < shown["records"], told.stdout
    heddle(where, "trace", "export", cut, "--perfetto", drawn)
    heddle(where, "trace", "cut", cut, other, "--seconds", 99)
    assert heddle(where, "trace", "show", other).stderr == "", "it has an end now"
    other.unlink()


def main():
    where = setting.fresh_stage("record")
    setting.run(lambda: check(where), where)


if __name__ == "__main__":
    main()
