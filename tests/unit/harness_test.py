"""bench/harness and table.py, without processes: python3 -m unittest."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import table  # noqa: E402
from harness import keep, md, report  # noqa: E402


# Results that no table reads: of tests (trace_predict_test, instructions.py) and of sentences.
OF_TESTS = {"predict-others.json", "instructions.json"}
OF_SENTENCES = {"groups.json", "conformance-h200.txt"}
# Of a table, and a test reads more of it.
OF_BOTH = {"predict.json"}


class Harness(unittest.TestCase):
    def test_result_file_is_json_and_round_trips(self):
        result = {"a": [{"n": i, "text": "x" * 50} for i in range(4)], "b": {"c": [1, 2.5, None]}}
        text = report.render(result)
        self.assertEqual(json.loads(text), result)
        self.assertGreater(text.count("\n"), 4)

    def test_a_table_of_raws_is_heddle_benchs_and_says_what_has_changed_since(self):
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder)
            (results / "raw/x").mkdir(parents=True)
            for name, tree in (("a", "1"), ("b", "2")):
                (results / f"raw/x/{name}.raw").write_text(json.dumps(
                    {"sessions": [{"trees": {"shim": tree, "ipc": "3"}}, {}]}))
            bench = results / "bench"
            bench.write_text("#!/bin/sh\nshift; for i; do basename $i; done\n")
            bench.chmod(0o755)
            text = "<!-- table:x:begin -->\nold\n<!-- table:x:end -->\n"
            with (mock.patch.object(table, "RESULTS", results),
                  mock.patch.object(table, "tree_of", {"shim": "2", "ipc": "3"}.get)):
                found = table.raw_tables(bench)
                new = table.replaced(text, found)
                self.assertEqual(table.replaced(text, {}), text, "without heddle-bench it stays")
            line = "\n\nThe launch path has changed since: `shim`."
            self.assertEqual(found, {"x": "a.raw\nb.raw" + line})
            self.assertEqual(table.without_stale(new), new.replace(line, ""))

    def test_the_front_table_has_a_row_a_pair(self):
        said = ("| ÷ alone; n | mps | priority | auto | n |\n| --- | ---: | ---: | ---: | ---: |\n"
                "| a: H mean | 2.5 [2.1, 2.9] | 1 | 1.05 | 12 |\n"
                "| a: H p99 | 3.5 | 1 | 1.06 | 12 |\n"
                "| a: L rate | 0.9 | 0.5 | 0.5 [0.4, 0.6] | 12 |\n"
                "| b: H p99 | few | few | few | – |\n| b: H TBT p99 | 2.6 | 1 | few | 12 |\n"
                "| b: L rate | 0.8 | 0.5 | 0.4 | 12 |\n| c: H p99 | 2 | 1 | 1 | 6 |\n"
                "| c: L1 rate | 0.3 | 0 | 0.1 [0, 0.2] | 6 |\n| c: L2 rate | 0.4 | 0 | 0.2 | 6 |\n"
                "| d: H p99 | 2 | 1 | 1 | 6 |\n\n| expected | met |\n")
        with (mock.patch.object(table, "FRONT_WAYS", ("mps", "auto")),
              mock.patch.object(table, "FRONT_WITHOUT", ("d",))):
            self.assertEqual(table.front(said).splitlines()[2:],
                             ["| a | 3.5 · 0.9 | 1.06 · 0.5 |", "| b | 2.6 · 0.8 | few · 0.4 |",
                              "| c | 2 · 0.3 + 0.4 | 1 · 0.1 + 0.2 |"])

    def test_what_all_pairs_say_is_said_once(self):
        said = "| a |\n\n- **a**: X, driver 1; seed 1, blocks of 2 s. Y.\n"
        self.assertEqual(table.shorter(said), said, "of one pair all stays")
        self.assertEqual(table.shorter(said + "- **b**: X, driver 1; seed 2, blocks of 2 s.\n"),
                         "| a |\n\n- All: X, driver 1.\n- **a**: seed 1, blocks of 2 s. Y.\n"
                         "- **b**: seed 2, blocks of 2 s.\n")

    def test_documents_are_not_on_the_launch_path(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)

            def commit(name):
                (root / "shim").mkdir(exist_ok=True)
                (root / "shim" / name).write_text(name)
                git = ["git", "-C", root, "-c", "user.name=x", "-c", "user.email=x@localhost"]
                subprocess.run([*git, "add", "."], check=True)
                subprocess.run([*git, "commit", "-qm", name], check=True)
                return subprocess.run([*git, "rev-parse", "HEAD:shim"], check=True, text=True,
                                      stdout=subprocess.PIPE).stdout.strip()

            subprocess.run(["git", "init", "-q", root], check=True)
            first = commit("a.cc")
            with mock.patch.object(table, "RESULTS", root / "bench/results"):
                (root / "bench").mkdir()
                commit("a.md")
                self.assertFalse(table.differs(first, "shim"))
                commit("b.cc")
                self.assertTrue(table.differs(first, "shim"))
                self.assertTrue(table.differs("0" * 40, "shim"))

    def test_results_hold_what_tables_read_and_no_more(self):
        paths = [path for path in md.RESULTS.rglob("*") if path.is_file()
                 and path.suffix != ".raw"
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

    def test_table_replaces_only_between_its_markers(self):
        text = "a\n<!-- table:x:begin -->\nold\n<!-- table:x:end -->\nb\n"
        new = table.replaced(text, {"x": "new"})
        self.assertEqual(new, text.replace("old", "new"))
        self.assertEqual(table.replaced(new, {"x": "new"}), new)


if __name__ == "__main__":
    unittest.main()
