"""tests/gpu/blast_radius.py's outcomes, and a trial with mock programs: python3 -m unittest."""

import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

import blast_radius  # noqa: E402


def window(at_s, longest_us=400):
    return {"at_s": at_s, "iterations": 100, "longest_us": longest_us}


class Outcomes(unittest.TestCase):
    def test_an_error_is_named_with_its_delay(self):
        error = {"error": "cudaErrorMpsRpcFailure", "at_s": 10.25}
        found = blast_radius.outcome(10, [window(9), window(9.5)], error, False)
        self.assertEqual((found["fate"], found["error"], found["after_s"]),
                         ("dies", "cudaErrorMpsRpcFailure", 0.25))

    def test_who_goes_on_is_judged_by_the_longest_iteration_then(self):
        windows = [window(8, 9000), window(9, 500), window(10.1, 2000), window(11)]
        found = blast_radius.outcome(10, windows, None, False)
        self.assertEqual((found["fate"], found["longest_before_us"], found["longest_after_us"],
                          found["iterations_after"]), ("goes on", 500, 2000, 200))

    def test_silence_is_a_hang(self):
        self.assertEqual(blast_radius.outcome(10, [window(9)], None, True)["fate"], "hangs")

    def test_a_row_counts_fates_and_takes_the_middle(self):
        trials = [{"fate": "dies", "error": "e", "after_s": s} for s in (0.1, 0.5, 0.2)]
        row = blast_radius.summary(trials + [{"fate": "goes on"}])
        self.assertEqual((row["fates"], row["after_s"], row["error"]),
                         ({"dies": 3, "goes on": 1}, 0.2, ["e"]))


class Trials(unittest.TestCase):
    """heddle takes no part, so that no install tree is needed."""

    def run_trial(self, name):
        with tempfile.TemporaryDirectory() as folder:
            options = SimpleNamespace(sim=True, dist=Path(folder), program=[
                sys.executable, blast_radius.ROOT / "tests/gpu/programs/mock_blast.py"])
            setting = blast_radius.Setting(name, Path(folder), options)
            setting.start()
            try:
                return blast_radius.trial(setting)
            finally:
                setting.stop()

    def test_under_mps_the_neighbour_dies_and_is_restarted(self):
        blast_radius.FAULT_AFTER_S = 0.3
        found = self.run_trial("mps")
        self.assertEqual((found["fate"], found["error"], found["fault"], found["attempts"]),
                         ("dies", "cudaErrorMpsRpcFailure", "cudaErrorIllegalAddress", 1))
        self.assertEqual(found["after_reset"], "cudaErrorMpsRpcFailure")

    def test_time_sliced_it_goes_on(self):
        blast_radius.FAULT_AFTER_S, blast_radius.WATCH_S = 0.2, 0.3
        found = self.run_trial("timeslice")
        self.assertEqual(found["fate"], "goes on")
        self.assertGreater(found["iterations_after"], 0)


if __name__ == "__main__":
    unittest.main()
