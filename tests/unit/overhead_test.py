"""bench/overhead.py's figures and the in-process comparison, without a GPU: python3 -m unittest."""

import ctypes
import random
import sys
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "workloads")]

import overhead  # noqa: E402
import protocol  # noqa: E402


def drifting(pairs, cost, seed=1):
    """Iterations on a host that drifts by 30 %, with a share `cost` on top where heddle is on."""
    draw = random.Random(seed)
    host = [1e6 * (1 + 0.3 * draw.random()) for _ in range(pairs)]
    return ([h * (1 + cost) * draw.gauss(1, 0.01) for h in host],
            [h * draw.gauss(1, 0.01) for h in host])


class Overhead(unittest.TestCase):
    def test_finds_a_cost_far_below_the_host_s_drift(self):
        found = overhead.compared(*drifting(2000, 0.03))
        self.assertLess(found["typical"]["lo"], 0.03)
        self.assertGreater(found["typical"]["hi"], 0.03)
        self.assertIs(overhead.passes(found), False)

    def test_passes_only_if_the_whole_interval_is_within_the_bar(self):
        self.assertIs(overhead.passes(overhead.compared(*drifting(2000, 0.002))), True)
        self.assertIsNone(overhead.passes(overhead.compared(*drifting(20, 0.01))))

    def test_the_mean_sees_a_rare_cost_that_the_median_does_not(self):
        off = [1e6] * 1000
        on = [1e6 + (1e6 if i % 20 == 0 else 0) for i in range(1000)]
        found = overhead.compared(on, off)
        self.assertEqual(found["typical"]["value"], 0)
        self.assertAlmostEqual(found["mean"]["value"], 0.05, places=3)

    def test_preload_compares_within_a_round(self):
        blocks = [{"round": r, "kind": kind, "us": [base * (1 + cost)] * 5}
                  for r, base in enumerate((1000, 1500, 900))
                  for kind, cost in (("bare", 0), ("disabled", 0.01), ("managed", 0.02))]
        found = overhead.over_bare(blocks)
        self.assertAlmostEqual(found["disabled"]["median"], 0.01)
        self.assertAlmostEqual(found["managed"]["hi"], 0.02)

    def test_pairs_belong_to_the_stage_until_the_daemon_calls_the_task_profiled(self):
        class Service:
            about = {}
            asked = 0

            def wait_ready(self):
                pass

            stop = wait_ready

        class Daemon:
            def use(self, policy, params):
                pass

            def counters(self):
                return {"ps": {"clients": [{"label": "s.0", "managed": True, "devices": [
                    {"profiled": service.asked >= 3}]}]}}

        def ab(job, seconds):
            time.sleep(0.01)
            job.asked += 1
            return {"on_ns": [2000, 1100 if job.asked <= 3 else 1000], "off_ns": [1000, 1000]}

        service = Service()
        options = overhead.parse(["--sim", "--stage", "--stages", "1", "--seconds", "0.2"])
        run = overhead.Overhead(options)
        run.daemon, run.ab, run.say = Daemon(), ab, lambda text: None
        run.start = lambda name, kind, number: service
        run.measure_stage("s")
        self.assertEqual(run.result["errors"], [])
        found = run.result["services"]["s"]
        self.assertEqual(found["stage"]["pairs"], 3)
        self.assertAlmostEqual(found["stage"]["mean"]["value"], 0.1)
        self.assertEqual(found["profiled"]["mean"]["value"], 0)
        self.assertEqual(found["stage, after a silence"]["pairs"], 3)
        self.assertAlmostEqual(found["profiled, after a silence"]["mean"]["value"], 1)

    def test_each_chunk_has_an_order_of_its_own(self):
        """Else a silence before each chunk would be at the expense of the same side of all."""
        first = set()

        class Job:
            def send(self, command, seconds, seed):
                first.add(random.Random(seed).getrandbits(1))

            def answer(self):
                return {"on_ns": [1], "off_ns": [1]}

        run = overhead.Overhead(overhead.parse(["--sim", "--stage", "--seed", "1"]))
        for _ in range(20):
            run.ab(Job(), overhead.CHUNK_S)
        self.assertEqual(first, {0, 1})

    def test_every_pair_has_one_iteration_of_each_kind_and_the_word_ends_at_zero(self):
        word, seen = ctypes.c_uint32(0), []
        found = protocol.ab(lambda: seen.append(word.value) or time.sleep(1e-4), word, 0.1, 1)
        self.assertEqual(len(found["on_ns"]), len(found["off_ns"]))
        self.assertTrue(all(sorted(pair) == [0, 1] for pair in zip(seen[::2], seen[1::2])))
        self.assertEqual({tuple(p) for p in zip(seen[::2], seen[1::2])}, {(0, 1), (1, 0)})
        self.assertEqual(word.value, 0)

    def test_without_the_shim_there_is_nothing_to_compare(self):
        self.assertIn("error", protocol.ab(lambda: None, None, 1, 1))


if __name__ == "__main__":
    unittest.main()
