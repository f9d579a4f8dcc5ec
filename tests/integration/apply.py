#!/usr/bin/env python3
"""`heddle plan jobs --apply` on the simulated GPU: running programs change their SMs at the next
launch, by the policy `shares`; with --rules heddled's file has the plan's rules, once, and is as it
was where heddled refuses it; what stands in the way is said: apply.py FAKE_NVML"""

import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402

TABLES = ROOT / "profiles/jobs/miso"
RULE = '[[rule]]\nname = "old"\nlabel = "other"\nshare = 0.5\n'
BEGIN = "# Of `heddle plan jobs --apply --rules`"


def jobs(where, **sm_pct):
    path = where.folder / "jobs.toml"
    path.write_text("".join(f'[[job]]\nname = "{name}"\nmemory_gib = 2\nsm_pct = {pct}\n'
                            "iteration_ms = 20\n" for name, pct in sm_pct.items()))
    return path


def apply(where, file, *words, code=0, **environment):
    done = subprocess.run([stage.HEDDLE, "plan", "jobs", file, "--data", TABLES, "--apply",
                           *words], env=where.env | environment, text=True, capture_output=True,
                          timeout=60)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def sms(where):
    """Of each label's latest kernels on the simulated GPU."""
    found = {}
    lines = where.sim_log.read_text().splitlines() if where.sim_log.exists() else []
    for line in lines:
        kernel = json.loads(line) if line.endswith("}") else {}
        if "start_ns" in kernel:
            found[kernel["label"]] = kernel["sms"]
    return found


def check_live(where):
    where.next_gpu("live")
    where.start_daemon("shares")
    first = json.loads(apply(where, jobs(where, other=50), "--json"))
    assert [j["programs"] for j in first["jobs"]] == [0], first
    begin = time.monotonic_ns() + 500_000_000
    demo = where.start_demo("batch", "live", 1, 4, begin, managed=True)
    stage.wait_until(lambda: sms(where).get("batch") == 132, 10, "all SMs at first")
    said = apply(where, jobs(where, batch=50, latency=20))
    assert "batch                 64 SMs, from its next launch on\n" in said, said
    assert "latency               24 SMs, when a program with this label starts\n" in said, said
    stage.wait_until(lambda: sms(where)["batch"] == 64, 5, "half of them")
    told = json.loads(apply(where, jobs(where, batch=20, latency=70), "--json"))
    assert [(j["job"], j["sms"], j["programs"]) for j in told["jobs"]] == [
        ("batch", 24, 1), ("latency", 96, 0)], told
    stage.wait_until(lambda: sms(where)["batch"] == 24, 5, "a fifth")
    mig = where.folder / "mig"  # of a GPU that NVML says is idle
    mig.write_text("1\n9 0 4 1 1\n9 4 4 2 1\n")
    said = apply(where, jobs(where, batch=20, latency=30), "--allow-mig", "--gpu", "h100-80gb",
                 code=1, HEDDLE_NVML=sys.argv[1], FAKE_NVML_MIG=str(mig))
    assert "programs are attached to heddled (1): slices change only while" in said, said
    assert mig.read_text() == "1\n9 0 4 1 1\n9 4 4 2 1\n"
    demo.finish()
    where.switch_policy("gapfill")
    assert "the live policy is gapfill" in apply(where, jobs(where, batch=50), code=1)
    where.stop_daemon()
    assert str(where.socket) in apply(where, jobs(where, batch=50), code=3)


def check_rules(where):
    where.next_gpu("rules")
    where.start_daemon("gapfill", settings=RULE)
    config = where.folder / "heddled.toml"
    before = config.read_text()
    said = apply(where, jobs(where, batch=50, latency=20), "--rules")
    assert f"Written into {config}" in said, said
    text = config.read_text()
    assert text.count(BEGIN) == 1 and text.index(BEGIN) < text.index('"old"'), text
    assert where.heddle("status")["config"]["rules"] == 3
    demo = where.start_demo("batch", "rules", 1, 2, 0, managed=True)
    client = stage.wait_until(lambda: where.heddle("ps")["clients"], 10, "it attached")[0]
    assert client["rule"] == "batch" and client["sm_count"] in (60, 64, 68), client
    said = apply(where, jobs(where, batch=20, latency=20), "--rules")
    assert 'batch                 24 SMs, when it is started again; its share at once, within its '\
        'rule\'s sms = "' in said, said
    demo.finish()
    assert config.read_text().count(BEGIN) == 1
    assert where.heddle("status")["config"]["rules"] == 3
    # A file that heddled refuses, for a reason of its own, is as it was.
    broken = config.read_text().replace("share = 0.5\n", "share = \"much\"\n")
    config.write_text(broken)
    said = apply(where, jobs(where, batch=30), "--rules", code=1)
    assert "heddled refused the rules" in said and "is as it was" in said, said
    assert config.read_text() == broken
    assert before.endswith(RULE)
    where.stop_daemon()


def check_time_slices():
    where = setting.fresh_stage("apply-slices", "timeslice")
    try:
        where.start_daemon("shares")
        assert "need MPS" in apply(where, jobs(where, batch=50), code=1)
    finally:
        where.close()


def main():
    where = setting.fresh_stage("apply")
    try:
        check_live(where)
        check_rules(where)
    finally:
        where.close()
    check_time_slices()
    print("plans are applied to running programs, and to heddled's file")


if __name__ == "__main__":
    main()
