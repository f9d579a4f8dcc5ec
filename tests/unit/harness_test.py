"""bench/harness and table.py, without processes: python3 -m unittest."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import table  # noqa: E402
from harness import beside, keep, md, report  # noqa: E402


# Results that no table reads: of tests (trace_predict_test, instructions.py) and of sentences.
OF_TESTS = {"predict-others.json", "instructions.json"}
OF_SENTENCES = {"h100/partitions.json", "h100/resnet101.json", "groups.json",
                "conformance-h200.txt"}
# Of a table, and a test reads more of it.
OF_BOTH = {"predict.json"}


class Harness(unittest.TestCase):
    def test_result_file_is_json_and_round_trips(self):
        result = {"a": [{"n": i, "text": "x" * 50} for i in range(4)], "b": {"c": [1, 2.5, None]}}
        text = report.render(result)
        self.assertEqual(json.loads(text), result)
        self.assertGreater(text.count("\n"), 4)

    def test_a_report_is_kept_as_cells_with_where_it_was_measured(self):
        text = "| a | b |\n| --- | ---: |\n| x | 1 |\n\n- **x**: a GPU\n"
        block = {"row": "mps", "energy_j": 3.14159}
        result = {"mode": "real", "gpu": "G", "block_s": 2, "raw": [block, {"row": "mps"}],
                  "sessions": [{"date": "d", "commit": "c"}]}
        found = keep.reported({"one": result, "two": result | {"raw": []}}, text)
        self.assertEqual(found["parts"], [[["a", "b"], ["x", "1"]], "- **x**: a GPU"])
        self.assertEqual(md.headed(found["parts"][0]) + "\n\n- **x**: a GPU\n", text)
        self.assertEqual((found["commit"], found["energy_j"]),
                         (["c"], {"one": {"block_s": 2, "mps": [3.1]}}))

    def test_results_hold_what_tables_read_and_no_more(self):
        paths = [path for path in md.RESULTS.rglob("*") if path.is_file()
                 and str(path.relative_to(md.RESULTS)) not in OF_TESTS | OF_SENTENCES | OF_BOTH]
        for path, document in keep.kept(paths, table.tables).items():
            with self.subTest(path.name):
                self.assertEqual(json.loads(path.read_text()), document,
                                 f"bench/table.py --keep {path}")

    def test_a_kept_result_has_its_figures_instead_of_samples(self):
        raw = {"us": [1, 2, 3], "per_s": 1 / 3, "command": "x", "row": {"a": 1, "b": 2}, "n": {}}
        once = keep.Seen(raw)
        self.assertEqual(md.computed(once, "mean", lambda: sum(once["us"]) / 3), 2)
        again = keep.Seen({**raw, "kept": {"mean": 2}})
        self.assertEqual(md.computed(again, "mean", self.fail), 2)
        self.assertEqual((again["per_s"], again["row"].get("b"), "n" in again, again.get("no")),
                         (1 / 3, 2, True, None))
        self.assertEqual(keep.pruned(again), {"per_s": 0.33333333, "row": {"b": 2}, "n": {},
                                              "kept": {"mean": 2}})

    def test_figures_of_a_pair_are_over_alone_by_repetition(self):
        def block(what, way, repetition, us=None, per_s=None, **more):
            roles = {"H": us and {"us": us, "unserved": 0}, "L": per_s and {"per_s": per_s}}
            return {"what": what, "way": way, "repetition": repetition, "seconds": 2,
                    "roles": [role for role, of in roles.items() if of], **roles, **more}

        counted = {"heddled": 0.1, "left": False, "counters": {"launches": 20}}
        found = beside.Cell([
            block("alone", "bare", 0, us=[100, 100]), block("alone", "bare", 1, us=[200, 200]),
            block("alone", "gates", 0, us=[50, 50]), block("again", "bare", 0, us=[100, 110]),
            block("alone", "bare", 0, per_s=10), block("alone", "gates", 0, per_s=9),
            block("beside", "bare", 0, us=[200, 400], per_s=5),
            block("beside", "bare", 1, us=[200, 200]),
            block("beside", "gates", 0, us=[50, 100], per_s=4.5, **counted),
            block("settle", "gates", 0, us=[900], per_s=1)]).figures()
        self.assertEqual((found["repetitions"], found["l_alone"]), (2, {"gates": 0.9}))
        bare, gates = found["sides"]["bare"], found["sides"]["gates"]
        self.assertEqual((bare["mean"], bare["p99"]), ([1.667, 1, 3], [2, 1, 4]))
        self.assertEqual((bare["l"], bare["requests"]), ([0.5, 0.5, 0.5], 4))
        self.assertEqual(gates["mean"], [1.5, 1.5, 1.5], "÷ the same process alone")
        self.assertEqual((gates["l"][0], gates["l_own"]), (0.45, 0.5))
        self.assertEqual((gates["heddled"], gates["counters"]), (0.1, {"launches": 10}))
        self.assertEqual(found["sides"]["alone again"]["mean"], [1.05, 1.05, 1.05])
        self.assertIn("bare        mean 1.667 (1.00..3.00)",
                      beside.told("x", found | {"h": "h", "l": "l", "load": 0}))

    def test_gates_have_a_row_a_pair_and_their_cost(self):
        side = {"mean": [1.0, 1, 1], "p99": [1.1, 1, 1], "requests": 9, "alone_ms": 5.0}
        pair = {"h": "h", "l": "l", "load": 0.5, "mode": "mps", "l_alone": {},
                "sides": {"alone again": side, "gates": side | {"l": [0.45, 0.4, 0.5]}}}
        tick = {"h": "tick", "l": "l", "load": 0, "mode": "mps", "l_alone": {"ask": 0.99},
                "sides": {"bare": {"l": [0.98, 0, 1]}}}
        document = {"benchmark": "gates", "mode": "real", "date": "1", "values": {"v": "equal"},
                    "cells": {"pair": pair, "tick": tick}, "probes": {"p": {"mean": 1}}}
        with tempfile.TemporaryDirectory() as folder:
            self.addCleanup(setattr, md, "RESULTS", md.RESULTS)
            md.RESULTS = Path(folder)
            self.assertEqual(table.gates_table(), md.NO_RESULT)
            (md.RESULTS / "gates.json").write_text(json.dumps(document))
            self.assertEqual(table.gates_table().splitlines()[2:], [
                "| h, load 0.5 beside l, MPS | 9 | 5.00 | 1.00 / 1.10 | – | – | – | "
                "1.00 / 1.10, 0.45 |"])
            self.assertEqual(table.gates_text().splitlines(), [
                "- 1 of 1 values and programs that check themselves are as bare.",
                "- l ÷ bare alone: alone asking 0.990; beside a kernel 100 times a second bare "
                "0.980.", "- p: mean 1."])

    def test_table_replaces_only_between_its_markers(self):
        text = "a\n<!-- table:x:begin -->\nold\n<!-- table:x:end -->\nb\n"
        new = table.replaced(text, {"x": "new"})
        self.assertEqual(new, text.replace("old", "new"))
        self.assertEqual(table.replaced(new, {"x": "new"}), new)


if __name__ == "__main__":
    unittest.main()
