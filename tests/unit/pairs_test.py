"""bench/pairs.py's figures, ratios and verdicts, without processes: python3 -m unittest."""

import json
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import table  # noqa: E402
from harness import conditions, figures, report  # noqa: E402


def blocks(repetitions, **rows):
    """One block a row and repetition; a row is (hp latency in µs or None, be iterations per s)."""
    return [
        {"rep": rep, "order": 0, "condition": name.replace("__", "/"),
         **({"hp_us": [hp] * 100, "hp_span_s": 1} if hp else {}),
         **({"be_us": [10] * be, "be_span_s": 1} if be else {})}
        for rep in range(repetitions) for name, (hp, be) in rows.items()]


def summarized(raw, rows, kernel_s):
    options = SimpleNamespace(date="2026-01-01", commit="c", gpu=["g", "d"], sim=True, command="",
                              seed=1, block_s=1, apart=False, pairs=["alexnet"])
    result = report.skeleton(options, rows, {"alexnet": (("alexnet", 64), ("vgg16", 64))})
    pair = result["pairs"]["alexnet"]
    pair["raw"] = raw
    pair["profile"] = {"wall_s": 2.0, "kernel_s": kernel_s, "kernels": 1, "iterations": 1000}
    report.summarize(result, rows)
    return result, pair


class Pairs(unittest.TestCase):
    def setUp(self):
        self.rows = conditions.choose("mps/gapfill,mps/client_priority", {}, [])

    def test_rows_bring_along_what_they_are_held_against(self):
        self.assertEqual({row.name for row in self.rows},
                         {"mps/gapfill", "mps/client_priority", "mps/alone_hp", "mps/alone_be"})

    def test_unknown_condition_names_the_known_ones(self):
        with self.assertRaisesRegex(ValueError, "mps/client_priority"):
            conditions.choose("mps/no_such", {}, [])

    def test_variant_carries_parameters_state_and_client_priority(self):
        row = conditions.parse_variant("q+cp:gapfill:quantum_us=200,reserve_us=5")
        self.assertEqual((row.name, row.be, row.params["reserve_us"]),
                         ("mps/q+client_priority", "heddle_be_cp", "5"))
        self.assertFalse(conditions.parse_variant("q@ts:gapfill").mps)

    def test_passes_only_if_faster_and_best_effort_gets_its_share(self):
        for be, passes in ((50, True), (10, False)):
            raw = blocks(5, mps__alone_hp=(1000, None), mps__alone_be=(None, 100),
                         mps__client_priority=(1500, 60), mps__gapfill=(1200, be))
            _, pair = summarized(raw, self.rows, kernel_s=0.5)
            verdict = pair["verdict"]["mps/gapfill"]
            self.assertEqual(verdict["be_share_wanted"], 0.2)
            self.assertEqual(verdict["be_share_wanted_traced"], 0.3)
            self.assertIs(verdict["passes"], passes)

    def test_slower_than_client_priority_does_not_pass(self):
        raw = blocks(5, mps__alone_hp=(1000, None), mps__alone_be=(None, 100),
                     mps__client_priority=(1500, 60), mps__gapfill=(1600, 90))
        _, pair = summarized(raw, self.rows, kernel_s=0.5)
        self.assertIs(pair["verdict"]["mps/gapfill"]["passes"], False)

    def test_a_row_that_broke_leaves_the_others_standing(self):
        raw = blocks(3, mps__alone_hp=(1000, None), mps__client_priority=(1500, 60))
        _, pair = summarized(raw, self.rows, kernel_s=0.5)
        self.assertEqual(pair["verdict"], {})
        self.assertEqual(pair["conditions"]["mps/client_priority"]["hp_mean_over_alone"]["median"],
                         1.5)

    def test_result_file_is_json_and_round_trips(self):
        raw = blocks(2, mps__alone_hp=(1000, None), mps__client_priority=(1500, 60))
        result, _ = summarized(raw, self.rows, kernel_s=0.5)
        self.assertEqual(json.loads(report.render(result)), result)

    def test_outputs_are_compared_with_the_first_bare_run(self):
        bare = {"side": "hp", "policy": None, "sha256": ["a"]}
        heddle = {"side": "hp", "policy": "gapfill", "sha256": ["a"]}
        self.assertEqual(report.outputs([bare, heddle, bare]),
                         {"control_equal": True, "heddle_equal": True})
        self.assertIs(report.outputs([bare, heddle | {"sha256": ["b"]}])["heddle_equal"], False)

    def test_interval_contains_the_median(self):
        found = figures.median_with_interval([1.0, 1.1, 0.9, 1.2, 1.05])
        self.assertLessEqual(found["lo"], found["median"])
        self.assertLessEqual(found["median"], found["hi"])

    def test_table_replaces_only_between_its_markers(self):
        text = "a\n<!-- table:x:begin -->\nold\n<!-- table:x:end -->\nb\n"
        new = table.replaced(text, {"x": "new"})
        self.assertEqual(new, text.replace("old", "new"))
        self.assertEqual(table.replaced(new, {"x": "new"}), new)


if __name__ == "__main__":
    unittest.main()
