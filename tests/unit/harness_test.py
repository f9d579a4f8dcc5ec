"""bench/harness, bench/table.py and bench/timeline.py, without processes: python3 -m unittest."""

import json
import sys
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

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
            verdict = table.verdict_of(pair(hi, share, repetitions), "mps/x")
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
