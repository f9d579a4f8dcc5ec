"""The framework matrix's verdicts and its cells, with mock programs: python3 -m unittest."""

import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))

import catalog  # noqa: E402
import cells  # noqa: E402
import coverage  # noqa: E402
import matrix  # noqa: E402
import verdicts  # noqa: E402

BARE = catalog.Condition("bare")


def row(condition, outcome="ok", out="a", **more):
    return {"program": "p", "condition": condition, "outcome": outcome,
            "digests": {"out": out, "clock": "1"}, **more}


def shim(asked=0, launches=48, clients=1, **self):
    return {"clients": clients, "granted": asked, "launches": launches,
            "counters": [{"self": self}] * clients}


def rows(**changes):
    """A program that runs alike everywhere, with some cells changed."""
    found = {name: row(name) for name in ("bare", "bare_again", "alone", "gated", "absent")}
    found["gated"]["shim"] = shim(asked=5)
    found["killed"] = row("killed", restarted=True, shim={"clients": 1})
    found["count_bare"] = row("count_bare", counted={"kernels": 48, "graphs": 0})
    found["count_heddle"] = row("count_heddle", counted={"kernels": 48, "graphs": 0})
    return [found[name] | changes.get(name, {}) for name in found]


class Verdicts(unittest.TestCase):
    def test_alike_if_every_cell_equals_bare(self):
        verdict = verdicts.judge(rows())
        self.assertEqual((verdict["result"], verdict["why"], verdict["notes"]), ("alike", [], []))
        self.assertEqual(verdict["launches"]["equal"], True)

    def test_a_different_output_is_named_with_its_condition(self):
        verdict = verdicts.judge(rows(gated={"digests": {"out": "b", "clock": "1"}}))
        self.assertEqual((verdict["result"], verdict["why"]), ("differs", ["gated: differ: out"]))

    def test_an_output_that_bare_does_not_repeat_proves_nothing_and_is_named(self):
        found = rows(bare_again={"digests": {"out": "a", "clock": "2"}},
                     alone={"digests": {"out": "a", "clock": "3"}})
        verdict = verdicts.judge(found)
        self.assertEqual(verdict["result"], "alike")
        self.assertEqual(verdict["notes"], ["bare differs from bare: clock"])

    def test_outputs_none_of_which_bare_repeats_are_not_compared(self):
        found = rows(bare_again={"digests": {"out": "b", "clock": "2"}})
        verdict = verdicts.judge(found)
        self.assertEqual((verdict["result"], verdict["why"]), ("not compared", []))
        self.assertEqual(verdict["outputs"]["gated"], "not compared")

    def test_a_missing_output_is_a_difference(self):
        verdict = verdicts.judge(rows(alone={"digests": {"clock": "1"}}))
        self.assertEqual(verdict["why"], ["alone: differ: out"])

    def test_a_hang_and_a_failure_are_differences(self):
        verdict = verdicts.judge(rows(killed={"outcome": "hung", "after_s": 60},
                                      absent={"outcome": "failed", "exit": -6}))
        self.assertEqual(verdict["why"], ["absent: failed: exit -6",
                                          "killed: hung: no end within 60 s"])

    def test_other_launch_counts_are_a_difference_unless_bare_has_them_too(self):
        fewer = {"counted": {"kernels": 47, "graphs": 0}}
        self.assertEqual(verdicts.judge(rows(count_heddle=fewer))["result"], "differs")
        varying = rows(count_heddle=fewer) + [row("count_bare_again", **fewer)]
        verdict = verdicts.judge(varying)
        self.assertEqual((verdict["result"], verdict["launches"]["equal"]), ("alike", None))

    def test_launches_are_counted_without_a_daemon_and_with_one_that_is_killed(self):
        same = {"counted": {"kernels": 48, "graphs": 0}}
        others = [row("count_absent", **same), row("count_killed", **same)]
        self.assertEqual(verdicts.judge(rows() + others)["result"], "alike")
        others[1]["counted"] = {"kernels": 96, "graphs": 0}
        verdict = verdicts.judge(rows() + others)
        self.assertEqual(verdict["result"], "differs")
        self.assertIn("count_killed", verdict["why"][0])

    def test_a_profiled_program_is_counted_by_its_profiler(self):
        more = {"bare": {"profiled": {"kernels": 9}}, "alone": {"profiled": {"kernels": 8}}}
        found = [r for r in rows(**more) if not r["condition"].startswith("count")]
        self.assertEqual(verdicts.judge(found, counted=False)["launches"]["by"], "torch.profiler")
        self.assertEqual(verdicts.judge(found)["result"], "differs")

    def test_a_cell_that_was_not_gated_or_not_attached_again_says_so(self):
        verdict = verdicts.judge(rows(gated={"shim": shim(asked=0)},
                                      killed={"shim": {"clients": 0}}))
        self.assertEqual(verdict["result"], "unproven")
        self.assertEqual(verdict["why"], ["gated: no launch asked",
                                          "killed: not attached again at the end"])

    def test_alike_wants_a_control_all_processes_and_a_count(self):
        once = [r for r in rows() if r["condition"] != "bare_again"]
        self.assertEqual(verdicts.judge(once)["why"], ["no control: bare did not run twice"])
        found = verdicts.judge(rows(), processes=2)
        self.assertEqual((found["result"], found["why"]),
                         ("unproven", ["gated: 1 of 2 processes attached"]))
        both = rows(gated={"shim": shim(asked=5, clients=2)})
        self.assertEqual(verdicts.judge(both, processes=2)["result"], "alike")
        uncounted = [r for r in rows() if not r["condition"].startswith("count")]
        self.assertEqual(verdicts.judge(uncounted)["why"], ["launches: not counted"])
        self.assertEqual(verdicts.judge(uncounted, counted=False)["result"], "alike")

    def test_a_program_that_heddle_never_saw_is_said_to_be_unmanaged_once(self):
        found = rows(gated={"shim": shim(clients=0)},
                     alone={"launches": 48, "shim": shim(0, 0, clients=0)},
                     killed={"shim": {"clients": 0}})
        said = ["not managed: the program was not attached"]
        verdict = verdicts.judge(found)
        self.assertEqual((verdict["result"], verdict["why"]), ("unproven", said))
        verdict = verdicts.judge(found, attaches=False)
        self.assertEqual((verdict["result"], verdict["notes"]), ("alike", said))

    def test_says_how_the_gated_launches_went(self):
        verdict = verdicts.judge(rows(gated={"shim": shim(7, 40, exempt=3, capturing=8)}))
        self.assertEqual(verdict["gated"], {"asked": 7, "exempt": 3, "capturing": 8,
                                            "launches": 48, "clients": 1})

    def test_launches_that_the_driver_saw_and_heddled_did_not_are_named(self):
        verdict = verdicts.judge(rows(count_heddle={"shim": shim(launches=40, capturing=8)}))
        self.assertEqual(verdict["notes"], [])
        verdict = verdicts.judge(rows(count_heddle={"shim": shim(launches=24)}))
        self.assertEqual(verdict["why"], ["heddled knows of 24 launches, the driver of 48"])

    def test_counts_are_compared_without_a_bare_run_too(self):
        counts = [r for r in rows() if r["condition"].startswith("count")]
        self.assertEqual(verdicts.judge(counts)["launches"]["equal"], True)
        self.assertEqual(verdicts.judge(counts)["result"], "not compared")
        counts[1] |= {"counted": {"kernels": 47, "graphs": 0}}
        self.assertEqual(verdicts.judge(counts)["result"], "differs")
        counts[1] |= {"outcome": "hung", "after_s": 60}
        self.assertEqual(verdicts.judge(counts)["why"],
                         ["count_heddle: hung: no end within 60 s"])

    def test_a_budget_that_ran_out_is_no_verdict(self):
        late = {name: {"outcome": "not run"} for name in ("killed", "absent")}
        self.assertEqual(verdicts.judge(rows(**late))["result"], "not run")
        found = verdicts.judge(rows() + [row("count_killed", "not run")])
        self.assertEqual((found["result"], found["why"]), ("not run", ["count_killed: not run"]))

    def test_a_program_that_fails_bare_says_nothing_about_heddle(self):
        self.assertEqual(verdicts.judge([row("bare", "failed", exit=2)])["result"], "bare fails")

    def test_what_is_not_installed_is_skipped_with_its_reason(self):
        verdict = verdicts.judge([row("bare", "skipped", reason="needs 2 GPUs")])
        self.assertEqual(verdict, {"result": "skipped", "why": ["needs 2 GPUs"]})


class Choice(unittest.TestCase):
    def test_a_pattern_that_names_nothing_is_refused_beside_others_that_do(self):
        self.assertEqual([p.name for p in matrix.chosen(catalog.CATALOG, "jax,torch_nccl*")],
                         ["jax", "torch_nccl", "torch_nccl_symmetric", "torch_nccl_single"])
        with self.assertRaisesRegex(ValueError, "pdl names none of: torch_eager"):
            matrix.chosen(catalog.CATALOG, "jax,pdl")


class Cells(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_cell(self, how, timeout_s=8, condition=BARE, **env):
        program = next(p for p in catalog.MOCKS if p.name == f"mock_{how}")
        host = SimpleNamespace(env=env, binaries=Path("/nowhere"), dist=Path(self.folder.name),
                               mps=False, policy="fifo", busy=["no_such_program"])
        folder = Path(self.folder.name) / condition.name
        return cells.Cell(program, condition, folder, host, timeout_s).run()

    def test_reads_digests_and_the_half_way_mark(self):
        found = self.run_cell("good")
        self.assertEqual((found["outcome"], found["half"], found["launches"]), ("ok", True, 48))
        self.assertEqual(found["digests"]["out"], "same")

    def test_a_skip_carries_its_reason(self):
        found = self.run_cell("skips")
        self.assertEqual((found["outcome"], found["reason"]), ("skipped", "needs 2 GPUs"))

    def test_a_crash_keeps_the_end_of_the_log(self):
        found = self.run_cell("crashes", HEDDLE_PRIORITY="9")
        self.assertEqual((found["outcome"], found["exit"]), ("failed", -6))
        self.assertIn("unspecified launch failure", found["log"]["program.log"])

    def test_a_child_that_holds_the_output_open_is_not_waited_for(self):
        found = self.run_cell("leaves")
        self.assertEqual((found["outcome"], found["exit"]), ("failed", 3))
        self.assertLess(found["wall_s"], 5)

    def test_a_hang_ends_at_its_bound_and_leaves_no_process(self):
        found = self.run_cell("hangs", timeout_s=0.5, HEDDLE_PRIORITY="9")
        self.assertEqual((found["outcome"], found["half"]), ("hung", True))
        self.assertLess(found["wall_s"], 5)
        self.assertTrue(found["threads"])
        self.assertIn("mock.py", found["log"]["program.log"])  # the stack of where it hangs

    def test_a_neighbour_that_does_not_start_says_nothing_about_the_program(self):
        beside = catalog.Condition("gated", beside=True)
        found = self.run_cell("good", condition=beside)
        self.assertEqual(found["outcome"], "not run")

    def test_the_neighbours_launches_are_not_counted_with_the_programs(self):
        heddle = Path(self.folder.name) / "bin/heddle"
        heddle.parent.mkdir()
        heddle.write_text("#!/bin/sh\nenv > ${0%/*}/env; echo ready; exec sleep 60\n")
        heddle.chmod(0o755)
        beside = catalog.Condition("count_killed", beside=True, counted=True)
        self.assertEqual(self.run_cell("good", condition=beside)["outcome"], "ok")
        env = (heddle.parent / "env").read_text()
        self.assertIn("HEDDLE_MATRIX_PACE_MS=0\n", env)
        self.assertNotIn("CUDA_INJECTION64_PATH", env)

    def test_counts_are_summed_over_processes(self):
        folder = Path(self.folder.name)
        for pid, kernels in ((1, 40), (2, 2)):
            (folder / f"count.{pid}").write_bytes(
                kernels.to_bytes(8, "little") + (1).to_bytes(8, "little"))
        self.assertEqual(cells.counted(folder), {"kernels": 42, "graphs": 2})

    def test_every_program_of_the_catalog_is_there_and_named_once(self):
        names = [p.name for p in catalog.CATALOG]
        self.assertEqual(len(names), len(set(names)))
        for program in [*catalog.CATALOG, *catalog.MOCKS, catalog.BUSY]:
            self.assertTrue((catalog.PROGRAMS / program.source).is_file(), program.source)


class Coverage(unittest.TestCase):
    def row(self, launches, **more):
        return coverage.row(row(
            "coverage", launches=None, shim=shim(launches=launches, capturing=3),
            counted={"kernels": 47, "graphs": 4}) | more)

    def test_a_launch_that_did_not_pass_the_shim_is_missing(self):
        found = self.row(47)
        self.assertEqual((found["launched"], found["passed"]), (51, 50))
        self.assertFalse(coverage.whole(found))
        self.assertTrue(coverage.whole(self.row(48)))

    def test_a_program_that_counted_nothing_covers_nothing(self):
        found = self.row(48, counted=None)
        self.assertEqual(found["outcome"], "not counted")
        self.assertFalse(coverage.whole(found))
        self.assertFalse(coverage.whole(self.row(48, outcome="hung")))


if __name__ == "__main__":
    unittest.main()
