#!/usr/bin/env python3
"""bench/by_jobs.py: its scenarios, and its table of a made-up result."""

import json
import pathlib
import sys
import tempfile
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import by_jobs  # noqa: E402


def block(row, rep, jobs, **more):
    return {"row": row, "rep": rep, "counted_s": 2.0, **more,
            "jobs": {name: {"us": us, "span_s": 1.0} for name, us in jobs.items()}}


def result(jobs, rows, raw):
    return {"gpu": "a GPU", "mode": "real", "sessions": [{"commit": "abcdef0123"}], "raw": raw,
            "jobs": [{"name": name, "role": role} for name, role in jobs.items()],
            "rows": [{"name": name} | ({} if name in ("mps", "alone/on1@mps")
                                       else {"policy": "mmk"}) for name in rows]}


PAIR = {"on1": "latency", "off1": "batch"}


class ByJobs(unittest.TestCase):
    def scenario(self, count, *arguments):
        options = by_jobs.parse(["--out", "x", *arguments])
        return tomllib.loads(by_jobs.scenario(count, options))

    def test_all_online_jobs_together_get_the_same_arrivals_whatever_n_is(self):
        for count in (1, 2, 4, 8, 16):
            jobs = self.scenario(count)["job"]
            rates = [float(job["arrivals"].split()[1]) for job in jobs if "arrivals" in job]
            self.assertEqual(len(jobs), count)
            self.assertEqual(len(rates), (count + 1) // 2)
            self.assertAlmostEqual(sum(rates), 40)
            self.assertEqual(len({job["name"] for job in jobs}), count)

    def test_no_more_processes_than_a_server_of_mps_takes(self):
        free = "mmk:daemon.contended_spin_us=0@mps"
        self.assertEqual(self.scenario(1)["policies"], ["mmk@mps"])
        self.assertEqual(self.scenario(8)["policies"], ["mmk@mps", free])
        self.assertEqual(self.scenario(16)["policies"], ["mmk@mps"])
        self.assertEqual(self.scenario(2, "--alone-at", "2", "--policies", "mmk,gapfill")
                         ["policies"], ["mmk@mps", "gapfill@mps", free, "mmk@mps/on1",
                                        "mmk@mps/off1"])

    def table(self, *results):
        with tempfile.TemporaryDirectory() as folder:
            for i, one in enumerate(results):
                (pathlib.Path(folder) / f"n{i}.json").write_text(json.dumps(one))
            return by_jobs.table(pathlib.Path(folder))

    def test_ratios_are_taken_within_a_repetition(self):
        raw = []
        for rep, us in enumerate((100, 200)):  # the host is half as fast in the second
            raw += [block("mps", rep, {"on1": [us, us], "off1": [us] * 10}),
                    block("mmk@mps", rep, {"on1": [us * 2] * 3, "off1": [us] * 5},
                          daemon_cpu=0.25, shim_cpu={"on1": 0.01, "off1": 0.02},
                          counters={"granted": 1000, "hooks_us": 2000})]
        rows = self.table(result(PAIR, ["mps", "mmk@mps"], raw))
        self.assertEqual(rows[1], ["2, mmk", "500", "25.000%", "3.000%", "0.100%",
                                   "+100.0% [+100.0%, +100.0%]", "-50.0% [-50.0%, -50.0%]", "2",
                                   "abcdef0"])

    def test_a_job_alone_is_held_against_itself_bare_and_alone(self):
        raw = [block("mps", 0, {"on1": [500]}), block("alone/on1@mps", 0, {"on1": [100]}),
               block("mmk@mps/on1", 0, {"on1": [101]})]
        rows = self.table(result(PAIR, ["mps", "alone/on1@mps", "mmk@mps/on1"], raw))
        self.assertEqual(len(rows), 2)
        self.assertEqual(rows[1], ["1, mmk, alone: on1", "0", "–", "–", "–",
                                   "+1.0%", "–", "1", "abcdef0"])

    def test_hooks_are_a_share_of_the_time_of_blocks_that_know_theirs(self):
        def share(*known):
            raw = [block("mmk@mps", rep, {"on1": [1]},
                         counters={"granted": 1} | ({} if us is None else {"hooks_us": us}))
                   for rep, us in enumerate(known)]
            return self.table(result({"on1": "latency"}, ["mmk@mps"], raw))[1][4]

        self.assertEqual(share(40_000, 20_000), "1.500%")
        self.assertEqual(share(40_000, None), "2.000%")  # another policy took over in the second
        self.assertEqual(share(0, 20_000), "0.500%")  # in the first no hook was called
        self.assertEqual(share(None), "–")

    def test_starving_is_not_hidden_and_no_request_is_no_starving(self):
        raw = [block("mps", 0, {"on1": [100], "on2": [], "off1": [100] * 4}),
               block("mmk@mps", 0, {"on1": [300], "on2": [], "off1": []})]
        jobs = PAIR | {"on2": "latency"}
        rows = self.table(result(jobs, ["mps", "mmk@mps"], raw))
        self.assertEqual(rows[1][5:8], ["+200.0%", "-100.0%", "1"])
        raw[1]["jobs"]["on1"]["us"] = []  # it came, and was not begun: there is no mean
        self.assertEqual(self.table(result(jobs, ["mps", "mmk@mps"], raw))[1][5], "–")

    def test_rows_are_in_order_of_n_and_no_result_is_no_table(self):
        two = result(PAIR, ["mmk@mps"], [block("mmk@mps", 0, {"on1": [1]})])
        one = result({"on1": "latency"}, ["mmk@mps"], [block("mmk@mps", 0, {"on1": [1]})])
        self.assertEqual([row[0] for row in self.table(two, one)[1:]],
                         ["1, mmk, alone", "2, mmk"])
        self.assertIsNone(self.table())


if __name__ == "__main__":
    unittest.main()
