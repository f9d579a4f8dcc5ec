#!/usr/bin/env python3
"""gapfill on the simulated GPU, time-sliced: `heddle ps` states what short best-effort kernels may
add to the important program's gaps."""

import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

SECONDS = 3
SWITCH_US, NOTICE_US = 70, 70  # what any bound holds, time-sliced (daemon/core/bounds.cc)


def check(where):
    where.start_daemon("gapfill")
    start_ns = time.monotonic_ns() + 500_000_000
    demos = {"latency": where.start_demo("latency", "bounds", 1, SECONDS, start_ns, True),
             "batch": where.start_demo("batch", "bounds", 2, SECONDS, start_ns, True,
                                       ("--kernel-ms", "0.1"))}
    time.sleep(0.5 + SECONDS / 2)
    ps = {c["label"]: c["devices"][0] for c in where.heddle("ps")["clients"]}
    listing = subprocess.run([stage.HEDDLE, "ps"], env=where.env, text=True, capture_output=True,
                          timeout=20).stdout
    device = where.heddle("status")["devices"][0]
    bounds = device["bounds"]
    said = subprocess.run([stage.HEDDLE, "status"], env=where.env, text=True, capture_output=True,
                          timeout=20).stdout
    where.check_answers({role: demo.finish() for role, demo in demos.items()})

    latency, batch = ps["latency"], ps["batch"]
    expect(latency["gaps_filled"] > 0, latency)
    expect(latency["added_us_max"] > SWITCH_US + NOTICE_US, latency)
    expect(batch["added_us_max"] == 0, batch)
    expect(latency["gaps_exceeded"] < latency["gaps_filled"] / 2, latency)
    expect((latency["gaps_exceeded"] > 0) == (latency["exceeded_us_max"] > 0), latency)
    expect(re.search(r"^\d+ .* Q0 .* latency .* \d+\.\d\d!? .* active$", listing, re.M), listing)
    # What is in flight now counts in each of the two, and was more or less a moment ago.
    expect(len(bounds) == 1 and bounds[0]["added_us_max"] > SWITCH_US + NOTICE_US, bounds)
    expect(" ms at most to one of its gaps" in said, said)


def main():
    where = setting.fresh_stage("bounds", "timeslice")
    setting.run(lambda: check(where), where)
    print("ok: each runs once, and the bound is told")


if __name__ == "__main__":
    main()
