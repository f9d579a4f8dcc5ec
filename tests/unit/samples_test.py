"""Comparing other people's programs bare and under heddle: python3 -m unittest."""

import shutil
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))

import samples  # noqa: E402


def ran(output="Result = PASS", status=0, **files):
    return {"exit": status, "output": output, "files": files}


class Judgements(unittest.TestCase):
    def verdict(self, *bares_and_heddle):
        *bares, heddle = bares_and_heddle
        found = samples.judge(bares, heddle)
        return found["verdict"], found["why"]

    def test_alike_if_nothing_differs(self):
        self.assertEqual(self.verdict(ran(), ran(), ran()), ("alike", []))

    def test_where_bare_repeats_itself_exactly_one_other_digit_is_a_difference(self):
        found = self.verdict(ran("sum 1.5"), ran("sum 1.5"), ran("sum 1.6"))
        self.assertEqual(found, ("differs", ["output (exact)"]))

    def test_timings_are_masked_where_bare_differs_in_them(self):
        runs = ran("took 1.5 ms at 0x7f"), ran("took 12 ms at 0x8e"), ran("took 3e-2 ms at 0x1")
        self.assertEqual(self.verdict(*runs), ("alike", []))
        found = self.verdict(runs[0], runs[1], ran("FAILED 1.5 ms"))
        self.assertEqual(found, ("differs", ["output (numbers masked)"]))

    def test_a_further_bare_run_tells_what_two_had_in_common_by_chance(self):
        runs = [ran("took 1 ms", x="1"), ran("took 1 ms", x="1"), ran("took 2 ms", x="2")]
        self.assertEqual(self.verdict(*runs)[0], "differs")
        self.assertEqual(self.verdict(*runs[:2], ran("took 3 ms", x="3"), runs[2]), ("alike", []))
        self.assertEqual(self.verdict(*runs[:2], ran("took 3 ms"), ran("no"))[0], "differs")

    def test_lines_of_threads_may_come_in_any_order_if_bare_s_do(self):
        self.assertEqual(self.verdict(ran("a\nb"), ran("b\na"), ran("a\nb\na"))[0], "alike")
        self.assertEqual(self.verdict(ran("a\nb"), ran("b\na"), ran("a\nc"))[0], "differs")

    def test_exit_status_and_written_files_count(self):
        self.assertEqual(self.verdict(ran(), ran(), ran(status=1))[1], ["exit 1"])
        self.assertEqual(self.verdict(ran(x="1"), ran(x="1"), ran(x="2"))[1], ["file x"])
        self.assertEqual(self.verdict(ran(x="1"), ran(x="2"), ran(x="3")), ("alike", []))

    def test_a_hang_under_heddle_differs_and_one_bare_says_nothing(self):
        hung = {"outcome": "no end within 60 s"}
        self.assertEqual(self.verdict(ran(), ran(), hung), ("differs", ["no end within 60 s"]))
        self.assertEqual(self.verdict(hung, hung, hung)[0], "bare fails")
        self.assertEqual(self.verdict(ran(status=2), ran(status=2), ran())[0], "bare fails")

    def test_what_used_the_driver_and_did_not_attach_is_unproven_unless_it_differs(self):
        for used, attached, verdict in ((True, True, "alike"), (False, False, "alike"),
                                        (True, False, "unproven")):
            found = samples.judge([ran(), ran()], ran(), used, attached)
            self.assertEqual(found["verdict"], verdict)
        found = samples.judge([ran(), ran()], ran(status=1), used_driver=True)
        self.assertEqual((found["verdict"], found["why"]), ("differs", ["exit 1"]))


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def program(self, name):
        path = self.folder / name
        shutil.copy(shutil.which(name), path)
        return path

    def test_finds_executables_and_leaves_out_what_a_build_leaves(self):
        wanted = self.program("true")
        for left in ("CMakeFiles/a.out", "libx.so.1"):
            (self.folder / left).parent.mkdir(exist_ok=True)
            shutil.copy(wanted, self.folder / left)
        (self.folder / "script.sh").write_text("#!/bin/sh\n")
        (self.folder / "script.sh").chmod(0o755)
        self.assertEqual(samples.programs(self.folder), [wanted])

    def test_a_run_has_status_output_and_what_it_wrote(self):
        found = samples.run_once(self.program("cp"), ["cp", "copy"], [], {}, 10)
        self.assertEqual(found["exit"], 0)
        self.assertIn("copy", found["files"])
        found = samples.run_once(self.program("ls"), ["nowhere"], [], {"LC_ALL": "C"}, 10)
        self.assertNotEqual(found["exit"], 0)
        self.assertIn("No such file", found["output"])

    def test_a_run_that_does_not_end_is_ended(self):
        found = samples.run_once(self.program("sleep"), ["60"], [], {}, 0.2)
        self.assertEqual(found, {"outcome": "no end within 0.2 s"})


if __name__ == "__main__":
    unittest.main()
