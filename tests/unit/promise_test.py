#!/usr/bin/env python3
"""bench/promise.py's rows, blocks and tables, without a process."""

import contextlib
import io
import json
import math
import re
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import promise  # noqa: E402
import promise_rows  # noqa: E402
import promise_table  # noqa: E402

POLICIES = ["combined", "ipc_budget"]


def alone(us):
    return {"kind": "alone", "n": 50, "mean_us": us, "p99_us": us, "per_s": 1e6 / us}


def beside(us, *others):
    if us is None:
        return {"kind": "beside", "n": 0, "per_s": 0.0, "others": list(others)}
    return {**alone(us), "kind": "beside", "others": list(others)}


def cell(rows, antagonists=("train",), victim="net"):
    """Of a victim of 1 000 µs and antagonists of 10 iterations a second."""
    return {"victim": victim, "antagonists": list(antagonists), "block_s": 1.0,
            "alone": {victim: [alone(1000)], **{name: [{"n": 10, "mean_us": 1e5, "per_s": 10.0}]
                                               for name in antagonists}},
            "rows": {name: {"blocks": blocks} for name, blocks in rows.items()}}


def row(us, per_s):
    """A B A B A at these."""
    return [alone(1000), beside(us, per_s), alone(1000), beside(us, per_s), alone(1000)]


def result(*cells):
    return {"mode": "real", "gpu": "a GPU", "commit": "abc", "bar": 1.10, "slowdown_max": 1.10,
            "cells": list(cells)}


class Rows(unittest.TestCase):
    def parsed(self, text):
        return promise_rows.parse_row(text, POLICIES)

    def test_bare_rows_tell_the_antagonists_mps_what_they_are(self):
        self.assertEqual(self.parsed("mps").environment, ())
        self.assertEqual(dict(self.parsed("percent:4+priority").environment),
                         {"CUDA_MPS_CLIENT_PRIORITY": "1",
                          "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"})
        self.assertEqual({self.parsed(t).by for t in ("mps", "mps+priority", "percent:15")}, {""})

    def test_static_rows_have_a_daemon_and_processes_of_their_own(self):
        off, on = self.parsed("static:15"), self.parsed("static:15+priority")
        self.assertEqual((off.by, off.params), ("static", {"sms": "120", "first": "false"}))
        self.assertEqual(on.params, {"sms": "120", "first": "true"})
        self.assertEqual(off.processes(), on.processes())
        self.assertNotEqual(off.processes(), self.parsed("combined").processes())

    def test_a_victim_is_one_process_whatever_its_neighbours_are_told(self):
        self.assertEqual(self.parsed("mps").processes()[0],
                         self.parsed("mps+priority").processes()[0])
        self.assertNotEqual(self.parsed("mps").processes()[1],
                            self.parsed("mps+priority").processes()[1])

    def test_parameters_go_with_their_policy(self):
        words = promise_rows.joined("ipc_budget:fence_sm=32,inflight_us=500,mps".split(","))
        self.assertEqual(words, ["ipc_budget:fence_sm=32,inflight_us=500", "mps"])
        self.assertEqual(self.parsed(words[0]).params, {"fence_sm": "32", "inflight_us": "500"})

    def test_what_says_nothing_is_refused_by_name(self):
        for text, why in (("orin", "no policy 'orin'"), ("static:16", "1 to 15"),
                          ("static", "1 to 15"), ("combined+priority", "only mps"),
                          ("mps+first", "only mps"), ("combined:32", "KEY=VALUE")):
            with self.assertRaisesRegex(promise_rows.BadRow, re.escape(f"'{text}'") + f".*{why}"):
                self.parsed(text)

    def test_mixes_are_drawn_by_the_seed_alone_and_differ(self):
        drawn = promise_rows.drawn_mixes("abcd", 4, 7)
        self.assertEqual(drawn, promise_rows.drawn_mixes("abcd", 4, 7))
        self.assertEqual(len(set(drawn)), 4)
        self.assertEqual(len(promise_rows.drawn_mixes("abc", 9, 7)), 3)  # there are no more
        self.assertTrue(all(a != b for a, b in (mix.split("+") for mix in drawn)))


class Blocks(unittest.TestCase):
    def test_a_block_is_judged_by_the_two_around_it(self):
        blocks = [alone(1000), beside(1100), alone(1000), beside(1100), alone(980), beside(1100),
                  alone(1040)]
        found = promise_table.judged(blocks, 1.10)
        self.assertEqual([kept for _, kept in found], [True, False, True])
        self.assertAlmostEqual(found[1][0], 1100 / 990)

    def test_a_block_without_neighbours_is_not_judged(self):
        self.assertEqual(promise_table.judged([alone(1000), beside(1100)], 1.10), [])

    def test_a_victim_that_never_ran_was_not_kept(self):
        found = promise_table.judged([alone(1000), beside(None), alone(1000)], 1.10)
        self.assertEqual(found, [(math.inf, False)])
        figures = promise_table.of_row(cell({"mps": [alone(1000), beside(None, 10), alone(1000)]}),
                                       "mps", 1.10)
        self.assertEqual((figures["kept"], figures["fewest"], figures["stp"]), (0, 0, 1.0))

    def test_blocks_are_long_enough_for_the_runs(self):
        options = SimpleNamespace(block_s=1.0, runs=30)
        self.assertEqual(promise.block_seconds(1000, options), 1.0)
        self.assertAlmostEqual(promise.block_seconds(100_000, options), 4.5)

    def test_what_is_kept_of_a_block(self):
        kept = promise.told({"us": [3000, 1000, 2000], "span_s": 0.006})
        self.assertEqual(kept, {"n": 3, "mean_us": 2000, "p99_us": 3000, "per_s": 500.0})
        self.assertEqual(promise.told({"us": [], "span_s": 0}), {"n": 0, "per_s": 0.0})


class Tables(unittest.TestCase):
    def test_throughput_and_stp_are_over_alone(self):
        one = promise_table.of_row(cell({"mps": row(1250, 5)}), "mps", 1.10)
        self.assertEqual((one["be"], one["stp"], one["slowdown"]), (0.5, 1.3, 1.25))
        both = cell({"mps": [alone(1000), beside(1000, 5, 2), alone(1000)]}, ("a", "b"))
        self.assertAlmostEqual(promise_table.of_row(both, "mps", 1.10)["be"], 0.7)

    def test_the_best_static_setting_keeps_the_promise(self):
        found = cell({"static:4": row(1050, 2), "static:8": row(1080, 4), "static:15": row(1500, 9),
                      "combined": row(1050, 9)})
        self.assertEqual(promise_table.best_static(found, 1.10)[0], "static:8")
        broken = cell({"static:4": row(1200, 2)})
        self.assertIsNone(promise_table.best_static(broken, 1.10))

    def test_a_single_static_setting_keeps_all_promises(self):
        first = cell({"static:4": row(1050, 2), "static:8": row(1050, 4)})
        second = cell({"static:4": row(1050, 2), "static:8": row(1200, 4)}, victim="other")
        self.assertEqual(promise_table.single_static(result(first, second))[0], "static:4")
        self.assertEqual(promise_table.single_static(result(first))[0], "static:8")
        absent = cell({"static:8": row(1050, 4)}, victim="third")
        self.assertEqual(promise_table.single_static(result(first, absent))[0], "static:8")

    def test_combined_without_a_fence_is_the_one_that_its_cell_does_not_name(self):
        before = cell({"combined": row(1050, 1), "combined:fence_sm=64": row(1050, 2)})
        since = cell({"combined": row(1050, 2), "combined:fence_sm=0": row(1050, 1)})
        rows = promise_table.fences([result(before), result(since)])
        self.assertEqual(rows[1], rows[2])
        self.assertEqual([text.split(" · ")[3] for text in rows[1][1:3]], ["0.100", "0.200"])
        self.assertEqual(rows[1][3:], ["–", "abc"])
        self.assertIsNone(promise_table.fences([]))

    def test_cells_stand_beside_each_other(self):
        never = [alone(1000), beside(None, 10), alone(1000)]
        rows = promise_table.beside(result(
            cell({"mps": row(1250, 5), "gapfill": row(1050, 1)}),
            cell({}, victim="not measured"),
            cell({"mps": never}, victim="other")))
        self.assertEqual(rows[0][1:], ["net beside train", "other beside train"])
        self.assertEqual(rows[1:], [["`mps`", "1.25 · 1.25 · 0.500", "∞ · – · 1.00"],
                                    ["`gapfill`", "1.05 · 1.05 · 0.100", "–"]])
        self.assertIsNone(promise_table.beside(result(cell({}))))

    def test_the_summary_asks_for_all_blocks_and_for_each_cell(self):
        good = cell({"combined": row(1050, 5), "static:8": row(1050, 4)})
        bad = cell({"combined": row(1200, 5)}, victim="other")
        lines = {line[0]: line for line in promise_table.summary(result(good, bad))}
        self.assertEqual(lines["`combined`"][1:5], ["2", "50% of 4", "0%", "no"])
        self.assertEqual(lines["`combined`"][-2:], ["1.25", "1 of 1"])
        only = {line[0]: line for line in promise_table.summary(result(good))}
        self.assertEqual(only["`combined`"][4], "yes")

    def test_a_simulated_result_says_so(self):
        found = result(cell({"mps": row(1050, 5)})) | {"mode": "simulated"}
        self.assertIn("simulated GPU", promise_table.text(found))
        self.assertIn("net beside train", promise_table.text(found))
        self.assertIn("No row was measured", promise_table.text(result()))

    def test_files_of_one_gpu_are_one_table(self):
        a, b = result(cell({"mps": row(1050, 5)})), result(cell({"mps": row(1200, 5)}, victim="x"))
        found = promise_table.merged([a, b | {"commit": "def"}])
        self.assertEqual((len(found["cells"]), found["commit"]), (2, "abc, def"))
        with self.assertRaisesRegex(SystemExit, "gpu a GPU and another"):
            promise_table.merged([a, b | {"gpu": "another"}])

    def test_heddles_own_count_is_of_the_row(self):
        self.assertEqual(promise_table.told([{"broken": 2, "blocks": 10},
                                             {"broken": 3, "blocks": 14}]), "1 of 4")
        self.assertIsNone(promise_table.told(None))


class Options(unittest.TestCase):
    def refused(self, *arguments):
        told = io.StringIO()
        with contextlib.redirect_stderr(told), self.assertRaises(SystemExit):
            promise.parse(list(arguments))
        return told.getvalue()

    def test_bad_options_are_refused_by_name(self):
        self.assertIn("--json FILE", self.refused())
        self.assertIn("no workload 'resnet'", self.refused("--plan", "--victims", "resnet"))
        self.assertIn("no policy 'orin'", self.refused("--plan", "--rows", "orin"))
        self.assertIn("--profiles", self.refused("--plan", "--probe"))

    def test_a_result_is_gone_on_with_only_as_it_was_begun(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "p.json"
            options = SimpleNamespace(json=file, resume=False, gpu=["a GPU"], slowdown_max=1.1,
                                      block_s=1.0, runs=30)
            self.assertEqual(promise.measured_before(options), {})
            file.write_text(json.dumps({"gpu": "a GPU", "slowdown_max": 1.1, "block_s": 1.0,
                                        "runs": 30, "cells": [1]}))
            with self.assertRaisesRegex(ValueError, "--resume"):
                promise.measured_before(options)
            options.resume = True
            self.assertEqual(promise.measured_before(options)["cells"], [1])
            options.gpu = ["another"]
            with self.assertRaisesRegex(ValueError, "has gpu a GPU, and this run another"):
                promise.measured_before(options)

    def test_the_plan_counts_cells_and_seconds(self):
        options = promise.parse(["--plan", "--victims", "vgg19", "--antagonists", "copy,training",
                                 "--random", "1", "--rows", "mps,combined", "--blocks", "2"])
        self.assertEqual([others for _, others in options.cells],
                         [["copy"], ["training"], ["copy", "training"]])
        found = promise.plan(options)
        self.assertEqual(found["cells"], 3)
        self.assertGreater(found["seconds_a_cell"], 2 * 5 * 1.0)  # two rows of five blocks

    def test_the_shipped_rows_are_all_understood(self):
        options = promise.parse(["--plan"])
        self.assertEqual([row.name for row in options.parsed], list(promise_rows.ROWS))


if __name__ == "__main__":
    unittest.main()
