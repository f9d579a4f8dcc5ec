"""The job protocol of bench/workloads and check.py, without torch: python3 -m unittest."""

import ctypes
import itertools
import os
import statistics
import sys
import tempfile
import time
import unittest
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parents[2] / "bench" / "workloads"
sys.path.insert(0, str(WORKLOADS))

import check  # noqa: E402
import protocol  # noqa: E402


def two_tokens():
    times = []
    for _ in range(2):
        time.sleep(0.004)
        times.append(time.monotonic())
    return times


class Tokens(unittest.TestCase):
    def test_the_first_counts_from_when_it_was_due_and_the_others_from_the_one_before(self):
        taken = protocol.Taken()
        taken.add(1.0, 2.0, [1.5, 1.75, 2.0])
        self.assertEqual(taken.answer(), {"us": [1000000], "span_s": 1.0, "ttft_us": [500000],
                                          "tbt_us": [250000, 250000]})

    def test_a_closed_loop_tells_the_times_between_them(self):
        found = protocol.go(two_tokens, time.monotonic() + 0.02, 0.1, 0.01, 0)
        self.assertEqual(len(found["tbt_us"]), len(found["us"]))
        both = sum(found["tbt_us"]) + sum(found["ttft_us"])
        self.assertTrue(0.5 * sum(found["us"]) < both <= sum(found["us"]) + 9)
        self.assertNotIn("tbt_us", protocol.go(lambda: time.sleep(0.01),
                                               time.monotonic() + 0.02, 0.05, 0.01, 0))

    def test_a_request_s_wait_is_no_time_between_tokens(self):
        """Twice as many requests as can be served: they wait longer and longer."""
        found = protocol.go_arriving(two_tokens, time.monotonic() + 0.02, 0.3, 0, 0, "open", "250",
                                     "1")
        self.assertEqual(len(found["tbt_us"]), len(found["us"]))
        self.assertGreater(max(found["ttft_us"]), 4 * sum(found["tbt_us"]) / len(found["us"]))


class Arrivals(unittest.TestCase):
    def gaps(self, kind, count=100_000):
        times = list(itertools.islice(protocol.arrivals(kind, 5.0, "100", "3"), count))
        self.assertEqual(times[0], 5.0)
        return [b - a for a, b in itertools.pairwise(times)]

    def test_the_spread_of_gaps_is_that_of_their_process(self):
        for kind, spread in (("open", 0), ("poisson", 1), ("onoff", 2)):
            gaps = self.gaps(kind)
            mean = statistics.fmean(gaps)
            self.assertAlmostEqual(mean, 0.01, delta=0.0003)
            self.assertAlmostEqual(statistics.pstdev(gaps) / mean, spread, delta=0.05)

    def test_a_seed_gives_the_same_requests(self):
        self.assertEqual(self.gaps("onoff", 50), self.gaps("onoff", 50))


class Pairs(unittest.TestCase):
    def test_one_of_each_pair_bypasses_heddle(self):
        word = ctypes.c_uint32(0)

        def iterate():  # twice as long with heddle
            time.sleep(0.002 if word.value else 0.004)
        found = protocol.go_paired(iterate, word, time.monotonic() + 0.02, 0.2, 0.01, "1")
        self.assertEqual(len(found["us"]), len(found["bypassed_us"]))
        self.assertGreater(min(found["us"]), 4000)
        self.assertLess(sum(found["bypassed_us"]), sum(found["us"]))
        self.assertAlmostEqual(found["span_s"], sum(found["us"]) / 1e6, 5)
        self.assertEqual(word.value, 0)

    def test_a_process_without_heddle_says_so(self):
        self.assertIn("shim is not loaded", protocol.go_paired(None, None, 0, 1, 0, "1")["error"])


class Check(unittest.TestCase):
    def test_every_case_starts_a_script_that_is_there(self):
        cases = dict(check.cases())
        self.assertGreater(len(cases), 70)
        for command in cases.values():
            self.assertTrue((WORKLOADS / command[0]).exists(), command)

    def test_tells_what_a_job_did_or_why_it_failed(self):
        with tempfile.NamedTemporaryFile() as device:
            os.environ["HEDDLE_MOCK_DEVICE"] = device.name
            found = check.check(["mock_job.py", "m", "1", "3"], 0.2)
            self.assertNotIn("error", found)
            self.assertGreater(found["iterations"], 1)
            self.assertGreaterEqual(found["tbt_p50_ms"], 3)
            self.assertTrue(found["repeatable"])
            broken = check.check(["mock_job.py", "m", "one"], 0.2)
            self.assertIn("invalid literal", broken["error"])


if __name__ == "__main__":
    unittest.main()
