#!/usr/bin/env python3
"""heddle try on the simulated GPU, from an installed tree: two programs that know nothing of it are
measured alone, shared and under a policy; what cannot be is told in a line."""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/quickstart"))
import stage  # noqa: E402  (the folder is known only now)

SERVICE = [stage.DEMO, "latency", "--seconds", "300"]
JOB = [stage.DEMO, "batch", "--seconds", "300"]


def heddle_try(*arguments, code=0):
    done = subprocess.run([str(word) for word in (stage.HEDDLE, "try", "--sim", *arguments)],
                          capture_output=True, text=True, timeout=90)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        result, page = pathlib.Path(folder) / "r.json", pathlib.Path(folder) / "r.html"
        said = heddle_try("--seconds", 0.4, "--repetitions", 1, "--warm-up", 0.1, "--json", result,
                          "--report", page, "--", *SERVICE, "--", *JOB)
        found = json.loads(result.read_text())
        assert found["verdict"] in said and "Every figure is simulated." in said, said
        assert list(found["figures"]) == ["alone/service", "shared", "gapfill", "alone/job"], found
        shared, ours = found["figures"]["shared"]["jobs"], found["figures"]["gapfill"]["jobs"]
        # The job's kernels are up to 3 ms, the service's runs about as long: nothing subtler is
        # certain of blocks this short on a busy host.
        slowdowns = [of["service"]["mean_over_alone"]["value"] for of in (shared, ours)]
        assert slowdowns[0] > slowdowns[1], slowdowns
        assert 0 < ours["job"]["per_s_over_alone"]["value"] < 1, ours
        assert shared["service"]["samples"] > 10, shared
        assert shared["job"]["gpu_share"]["value"] > 0.2, shared
        assert found["policies"]["gapfill"]["hash"], found["policies"]
        text = page.read_text()
        assert found["verdict"] in text and "Who ran when: gapfill" in text
        assert "return policy {" in text, "the policy's text"

    assert "say both programs" in heddle_try("--", *SERVICE, code=2)
    ended = heddle_try("--", "/bin/true", "--", *JOB, code=1)
    assert "service ended (status 0) before it was measured" in ended, ended


if __name__ == "__main__":
    main()
