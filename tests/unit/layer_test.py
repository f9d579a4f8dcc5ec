#!/usr/bin/env python3
"""layer.py on the GPU of pairs_test.py: which kernels are victims, in which order, and the table of
what was predicted of each."""

import contextlib
import io
import json
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "bench"), str(Path(__file__).parent)]
import layer  # noqa: E402
import pairs  # noqa: E402
from pairs_test import FakeGpu  # noqa: E402

# Says 1.2 and 2.4 by turns, and which kernel's metrics it was shown first.
HEDDLE = """#!/usr/bin/env python3
import csv, json, sys
document = json.load(open(sys.argv[4]))
rows = list(csv.reader(open(sys.argv[6])))
pairs = [{"predicted": [1.2 * (1 + i % 2), 1], "binds": [rows[2][2], "dram"]}
         for i, _ in enumerate(document["pairs"])]
print(json.dumps({"pairs": pairs, "unknown": len(document["kernels"]) - 3}))
"""


class LayerGpu(FakeGpu):
    """A layer's graph has kernels of 3, 4, 5, ... us, two of each name; a neighbour's has one."""

    def kernel_nodes(self, graph):
        yield from self.kernels(graph)[:6] if graph == "layer" else self.kernels(graph)[8:9]

    streams = [0, 1]

    def __init__(self):
        super().__init__()
        self.driver = types.SimpleNamespace(get=lambda *words: 33)  # the layer as a whole, us


class Layer(unittest.TestCase):
    def setUp(self):
        self.file = Path(tempfile.mkdtemp(), "layer.json")
        options = types.SimpleNamespace(json=str(self.file), layer="layer", limit=100)
        captured = {n: types.SimpleNamespace(graph=n) for n in ("layer", "slow", "fast")}
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(layer.run(options, LayerGpu(), captured, {"gpu": "arithmetic"}), 0)
        self.told = json.loads(self.file.read_text())

    def report(self, kernels):
        rows = [["ID", "Kernel Name", "which", pairs.METRICS[0]], ["", "", "", "inst/cycle"]]
        rows += [[str(i), k["name"], str(i // pairs.PROFILED), "1.5"]
                 for i, k in enumerate(k for k in kernels for _ in range(pairs.PROFILED))]
        self.file.with_suffix(".ncu.csv").write_text("\n".join(map(",".join, rows)))

    def test_each_node_that_is_long_enough_is_a_victim_of_each_neighbour(self):
        self.assertEqual([k["alone_us"] for k in self.told["kernels"]], [5, 6, 7, 8, 11, 11])
        self.assertEqual(len(self.told["whole"]), 6)
        self.assertEqual({(p["first"], p["second"], p["setting"]) for p in self.told["pairs"]},
                         {(v, n, s) for v in range(4) for n in (4, 5) for s in pairs.SETTINGS})
        for row in self.told["pairs"] + [{"slowdowns": [w["slowdown"]]}
                                         for w in self.told["whole_beside"]]:
            self.assertAlmostEqual(row["slowdowns"][0], 1.5, delta=0.01)

    def test_a_kernel_is_predicted_by_its_own_metrics_and_the_sum_is_weighted(self):
        self.report(self.told["kernels"])
        heddle = self.file.with_name("heddle")
        heddle.write_text(HEDDLE)
        os.chmod(heddle, 0o755)
        layer.predict(heddle, self.file)
        lines = layer.table(self.file).splitlines()
        self.assertEqual(len(lines), 2 + 4 + 2)
        self.assertIn("| 15% | 5.0 | 1.50 | 1.50 / 1.20 (-20%) 0 |", lines[2])
        self.assertIn("1.50 / 2.40 (+60%) 3 |", lines[5])
        self.assertIn("| sum of these | 79% | 26.0 | – | 1.50 / 1.20 (-20%) |", lines[6])
        self.assertIn("| 33.0 | – | 1.50 | 1.50 | – | – |", lines[7])

    def test_metrics_of_other_kernels_are_refused(self):
        self.report(self.told["kernels"][1:] + self.told["kernels"][:1])
        with self.assertRaises(ValueError):
            layer.csv_rows(self.file.with_suffix(".ncu.csv"), self.told["kernels"])
        self.assertEqual(layer.table(self.file), layer.NO_RESULT)

    def test_a_name_is_short(self):
        self.assertEqual(layer.short("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_"
                                     "13AUnaryFunctorIfffEEv"),
                         "vectorized_elementwise_kernel AUnaryFunctor")
        self.assertEqual(layer.short("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT"),
                         "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT")


if __name__ == "__main__":
    unittest.main()
