"""The manual of a tree in which a program cannot say its --help."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAYS = """#!/bin/sh
case $* in
broken*) echo no such module >&2; exit 1 ;;
--help)
  printf 'does things\\n%s [OPTIONS]\\n' "$0"
  printf 'Subcommands:\\n  sound  works\\n  broken  fails\\n' ;;
*) printf 'works\\n%s sound [OPTIONS]\\n' "$0" ;;
esac
"""


class Manual(unittest.TestCase):
    def test_leaves_out_what_cannot_be_said(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "bin").mkdir()
            for name in ("heddle", "heddled", "heddle-bench"):
                (tree / "bin" / name).write_text(
                    "#!/bin/sh\nexit 1\n" if name == "heddle-bench" else SAYS)
                (tree / "bin" / name).chmod(0o755)
            (tree / "share/heddle").mkdir(parents=True)
            shutil.copy(ROOT / "examples/heddled.toml", tree / "share/heddle")
            done = subprocess.run([sys.executable, ROOT / "examples/packages/manual.py", tree],
                                  text=True, capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("no page for heddle broken: its --help said: no such module", done.stderr)
            self.assertIn("no page for heddle-bench", done.stderr)
            pages = {page.name for page in (tree / "share/man/man1").iterdir()}
            self.assertEqual(pages, {"heddle.1.gz", "heddle-sound.1.gz"})


if __name__ == "__main__":
    unittest.main()
