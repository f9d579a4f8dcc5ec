"""bench/harness/cells.py: what is kept of results, and the tables of them."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from harness import cells, keep, md  # noqa: E402


def value(of):
    return {"value": of, "lo": of, "hi": of}


def row(p99, l, **more):
    return {"jobs": {"H": {"samples": 400, "mean_over_alone": value(1.02),
                           "p99_over_alone": p99 if isinstance(p99, dict) else value(p99), **more},
                     "L": {"per_s_over_alone": value(l)}},
            "stp": value(1.4), "daemon_cpu": value(0.05)}


def result(load=0.5, mode="real", **rows):
    rows = {name.replace("_at_", "@").replace("_to_", ":"): of for name, of in rows.items()}
    return {"mode": mode, "gpu": "GPU", "sessions": [{"date": "2026-01-02", "commit": "abc"}],
            "jobs": [{"name": "H", "role": "latency", "load": load},
                     {"name": "L", "role": "batch"}],
            "figures": {"alone/H": row(1.0, 1.0), **rows}}


class Cells(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(setattr, md, "RESULTS", md.RESULTS)
        md.RESULTS = Path(folder.name)

    def keep(self, **results):
        kept = cells.celled("beside_training", {pair: [of] for pair, of in results.items()})
        (md.RESULTS / "beside_training.json").write_text(json.dumps(kept))

    def test_nothing_is_shown_of_what_is_not_measured(self):
        self.assertEqual(cells.tables()["beside_training"], md.NO_RESULT)

    def test_the_best_split_is_the_one_with_most_best_effort_that_keeps_the_tail(self):
        cell = cells.cell_of([result(split_to_25=row(1.05, 0.2), split_to_50=row(1.09, 0.4),
                                     split_to_75=row(1.3, 0.6))])
        self.assertEqual(cells.ways_of(cell)["split"]["l"], 0.4)
        cell = cells.cell_of([result(split_to_50=row(1.2, 0.4), split_to_75=row(1.3, 0.6))])
        self.assertEqual(cells.ways_of(cell)["split"]["p99"], 1.2)

    def test_a_tail_of_few_requests_is_that_of_tokens(self):
        few = row({"few": 20}, 0.5, tbt_p99_over_alone=value(1.03),
                  ttft_p90_over_alone={"few": 20})
        cell = cells.cell_of([result(mps=few, auto_at_mps=row({"few": 20}, 0.5))])
        self.assertEqual(cell["rows"]["mps"]["p99"], "few")
        tails = {way: of["tail"] for way, of in cells.ways_of(cell).items()}
        self.assertEqual(tails, {"mps": 1.03, "auto@mps": None})

    def test_several_results_of_a_pair_are_pooled(self):
        def measured(l, us):
            blocks = [{"row": name, "jobs": {"H": {"us": of}}}
                      for name, of in (("alone/H@mps", [100] * 200), ("auto@mps", us))]
            return result(auto_at_mps=row({"few": 200}, l)) | {"raw": blocks}
        # Of 400 requests the fourth slowest: the first result has three that are slower.
        pooled = cells.cell_of([measured(0.2, [110] * 197 + [300] * 3),
                                measured(0.4, [120] * 198 + [150] * 2)])["rows"]["auto@mps"]
        self.assertEqual((pooled["p99"], pooled["requests"]), (1.5, 800))
        self.assertAlmostEqual(pooled["l"], 0.3)
        once = result(auto_at_mps=row({"few": 200}, 0.4)) | {"raw": []}
        self.assertEqual(cells.cell_of([once, once])["rows"]["auto@mps"]["p99"], "few")

    def test_the_tails_of_a_pair_are_of_one_figure(self):
        tokens = {"tbt_p99_over_alone": value(1.03), "ttft_p90_over_alone": value(1.06)}
        cell = cells.cell_of([result(mps=row({"few": 20}, 0.5, **tokens),
                                     auto_at_mps=row(1.4, 0.5, **tokens))])
        self.assertEqual([of["tail"] for of in cells.ways_of(cell).values()], [1.06, 1.06])

    def test_what_was_not_measured_is_no_zero(self):
        half = row({"few": 20}, 0.8)
        del half["jobs"]["L"]["per_s_over_alone"]
        self.keep(a=result(mps=row(4.0, 0.8), auto_at_mps=row(1.04, 0.5)),
                  b=result(mps=half, auto_at_mps=row(1.08, 0.4)))
        self.assertIn("| b | 400 | 1.02 / –, – | 1.02 / 1.08, 0.40 |",
                      cells.tables()["beside_training"])

    def test_a_row_with_requests_that_had_no_turn_is_told_as_a_lower_bound(self):
        self.keep(a=result(mps=row(4.0, 0.8, unserved=value(3.0)), auto_at_mps=row(1.04, 0.5)))
        self.assertIn("| > 1.02 / 4.00, 0.80 | 1.02 / 1.04, 0.50 |",
                      cells.tables()["beside_training"])

    def test_a_pair_that_is_lost_is_named(self):
        self.keep(won=result(mps=row(1.2, 0.9), auto_at_mps=row(1.05, 0.5)),
                  lost=result(mps=row(1.02, 0.9), auto_at_mps=row(1.05, 0.5)))
        self.assertEqual(cells.tables()["beside_training-lost"],
                         "- lost: MPS is better than `auto` for both.")

    def test_a_pair_without_what_to_compare_is_not_counted_as_won(self):
        no_auto = result(mps=row(1.2, 0.9), auto_at_mps=row({"few": 20}, 0.5))
        self.keep(won=result(mps=row(1.2, 0.9), auto_at_mps=row(1.05, 0.5)), no_auto=no_auto)
        self.assertEqual(cells.tables()["beside_training-lost"],
                         "- In none of 1 compared pairs is a way without heddle better than `auto` "
                         "for both.\n- not compared: no_auto")
        self.keep(no_auto=no_auto)
        self.assertEqual(cells.tables()["beside_training-lost"], "- not compared: no_auto")

    def test_any_results_are_printed_and_simulated_ones_say_so(self):
        path = md.RESULTS / "pair.json"
        path.write_text(json.dumps(result(mode="simulated", mps=row(1.2, 0.9))))
        said = subprocess.run([sys.executable, BENCH / "table.py", path], text=True, check=True,
                              stdout=subprocess.PIPE).stdout
        self.assertIn("| pair | 400 | 1.02 / 1.20, 0.90 |", said)
        self.assertIn("simulated: no measurement", said)

    def test_equals_have_a_row_a_result_and_a_dash_for_what_was_not_run(self):
        def equals(*ways):
            figures = {key: value(1 + i / 10) for i, key in enumerate(keep.TOGETHER)}
            return result(**dict.fromkeys(ways, figures)) | {"repetitions_done": 3}
        kept = keep.together({"a": equals("mps"), "b": equals("mps", "krisp_o_at_mps")})
        self.assertEqual(kept["commit"], ["abc"])
        self.assertEqual(kept["parts"][0][0][1:3], ["`mps`", "`krisp_o@mps`"])
        with self.assertRaisesRegex(ValueError, "simulated"):
            keep.together({"a": equals("mps") | {"mode": "simulated"}})
        self.assertEqual(kept["parts"][0][1], ["a", "1.00 (1.10), 1.20", "–", "3", "abc"])

    def test_simulated_results_are_kept_in_no_table(self):
        with self.assertRaisesRegex(ValueError, "simulated"):
            self.keep(a=result(mode="simulated", mps=row(1.2, 0.9)))


if __name__ == "__main__":
    unittest.main()
