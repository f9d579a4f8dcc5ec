"""bench/harness, timeline.py, table.py and its parts, without processes: python3 -m unittest."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import fikit  # noqa: E402
import old_pairs  # noqa: E402
import quartiles  # noqa: E402
import table  # noqa: E402
import timeline  # noqa: E402
from harness import figures, report  # noqa: E402


def pair(mean_hi, share, repetitions=5):
    """What a pair of the older results has of one row: its ratios and best effort's share."""
    ratio = {"of": "mps/x", "over": "mps/client_priority", "median": 0.8, "lo": 0.7}
    return {"ratios": [ratio | {"metric": "hp_mean", "hi": mean_hi, "n": repetitions},
                       ratio | {"metric": "hp_p99", "hi": 0.9, "n": repetitions}],
            "conditions": {"mps/x": {"be_over_alone": {"median": share}}},
            "idle_fraction": {"traced": 0.75, "untraced": 0.5}}


class Harness(unittest.TestCase):
    def test_passes_only_if_faster_and_best_effort_gets_its_share(self):
        for hi, share, repetitions, passes in ((0.9, 0.25, 5, True), (1.1, 0.25, 5, False),
                                               (0.9, 0.15, 5, False), (0.9, 0.25, 4, None)):
            verdict = old_pairs.verdict_of(pair(hi, share, repetitions), "mps/x")
            self.assertIs(verdict["passes"], passes, (hi, share, repetitions))
        self.assertEqual(verdict["be_share_wanted"], 0.2)
        self.assertEqual(verdict["be_share_wanted_traced"], 0.3)

    def test_result_file_is_json_and_round_trips(self):
        result = {"a": [{"n": i, "text": "x" * 50} for i in range(4)], "b": {"c": [1, 2.5, None]}}
        text = report.render(result)
        self.assertEqual(json.loads(text), result)
        self.assertGreater(text.count("\n"), 4)

    def test_interval_contains_the_median(self):
        found = figures.median_with_interval([1.0, 1.1, 0.9, 1.2, 1.05])
        self.assertLessEqual(found["lo"], found["median"])
        self.assertLessEqual(found["median"], found["hi"])

    def test_how_steady_tasks_are_tells_the_host_from_chance(self):
        self.assertEqual(quartiles.spread([4, 6]), 0.2)
        jumping, drifting = [10, 20, 30, 40] * 5, sorted([10, 20, 30, 40] * 5)
        self.assertGreater(quartiles.from_one_to_the_next(jumping), quartiles.spread(jumping))
        self.assertLess(quartiles.from_one_to_the_next(drifting), quartiles.spread(drifting) / 2)

    def fikit_result(self):
        def blocks(row, *us_of_each):
            return [{"rep": rep, "row": row, "jobs": {"H": {"us": [us, us], "span_s": 1}},
                     "counters": {"bound_violations": 2, "gaps_filled": 50},
                     "added_us_max": 99.0, "exceeded_us_max": 7.0 + rep}
                    for rep, us in enumerate(us_of_each)]

        result = {"name": "x", "sessions": [{"commit": "abc", "date": "2026-11-02T00:00:00Z"}],
                  "figures": {},
                  "raw": [*blocks("timeslice", 60, 60), *blocks("fikit", 10, 30),
                          *blocks("mps", 30, 30)]}
        self.addCleanup(setattr, fikit, "results", fikit.results)
        fikit.results = lambda series: [result]
        return result

    def test_what_fikit_asks_for_is_taken_from_the_right_rows(self):
        self.fikit_result()
        self.assertEqual(fikit.speed_ups("s")[1], ["x", "4.00", "–", "2.00", "–", "–", "–"])
        self.assertEqual(fikit.bounds("s")[1],
                         ["x", "`fikit`", "abc", "99.0", "100", "4", "4.00%", "8.00"])
        self.addCleanup(setattr, fikit, "UNCOUNTED", fikit.UNCOUNTED)
        fikit.UNCOUNTED = {"abc"}  # gaps_filled is no count of its blocks
        self.assertEqual(fikit.bounds("s")[1:], [])

    def test_times_between_tokens_are_of_jobs_that_have_tokens(self):
        result = self.fikit_result()
        result["jobs"] = [{"name": "H"}, {"name": "L"}]
        tokens = {"p50": {"value": 20.0}, "p99": {"value": 40.0}}
        result["figures"] = {"mps": {"jobs": {"H": {"tbt_ms": tokens}, "L": {}}}}
        self.assertEqual(fikit.between_tokens("s")[1:],
                         [["x: H", "–", "20.0 / 40.0", "–", "–", "abc"]])

    def test_predicted_is_only_what_was_committed_before(self):
        self.fikit_result()
        for name in ("RESULTS", "PREDICTED"):
            self.addCleanup(setattr, fikit, name, getattr(fikit, name))
        fikit.PREDICTED = {"s": [("fikit", "H", "mean", "timeslice")]}
        with tempfile.TemporaryDirectory() as folder:
            fikit.RESULTS = Path(folder)
            (fikit.RESULTS / "predicted").mkdir()

            def committed(date):
                of_x = {"commit": "def", "committed": date, "said": [0.25],
                        "columns": ["`fikit`: H mean ÷ `timeslice`"]}
                (fikit.RESULTS / "predicted/s.json").write_text(json.dumps({"x": of_x}))
                return fikit.predicted("s")[1:]

            self.assertEqual(committed("2026-11-01T23:59:59Z"),
                             [["x", "0.250 → 0.333", "def, abc"]])
            self.assertEqual(committed("2026-11-02T00:00:01Z"), [])

    def test_table_replaces_only_between_its_markers(self):
        text = "a\n<!-- table:x:begin -->\nold\n<!-- table:x:end -->\nb\n"
        new = table.replaced(text, {"x": "new"})
        self.assertEqual(new, text.replace("old", "new"))
        self.assertEqual(table.replaced(new, {"x": "new"}), new)

    def test_timeline_has_a_lane_for_each_job_and_tells_who_met_whom(self):
        jobs = [{"name": "a", "role": "latency", "spans_us": [[0, 10, 0], [50, 4, 0]]},
                {"name": "b", "role": "batch", "spans_us": [[45, 100, 0]]}]
        document = {"scenario": "s", "row": "mps", "window_us": 200_000, "jobs": jobs}
        svg = timeline.draw(document, 0, 1000)
        self.assertEqual(svg.count("<rect x="), 3)
        self.assertIn("take 4.0 µs on average while best effort is on the GPU (1), 10.0 µs", svg)


if __name__ == "__main__":
    unittest.main()
