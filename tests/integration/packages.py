#!/usr/bin/env python3
"""The deb packages of dist/: what they hold, where, and what lintian and systemd say of them."""

import gzip
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
NAMES = ("heddle", "libheddle-shim", "heddle-bench")
# Beside them only share/doc/PACKAGE and, of libheddle-shim, lintian's overrides.
PLACES = {
    "heddle": ("etc/heddle/", "usr/bin/heddle", "usr/lib/heddle/sim/", "usr/share/heddle/",
               "usr/libexec/heddle/heddle-stop-probe",
               "usr/share/man/", "usr/share/bash-completion/", "usr/share/zsh/",
               "usr/lib/systemd/system/heddle", "usr/lib/tmpfiles.d/heddle.conf"),
    "libheddle-shim": ("usr/lib/heddle/", "usr/share/lintian/overrides/"),
    "heddle-bench": ("usr/bin/heddle-bench", "usr/libexec/heddle/", "usr/share/man/man1/",
                     "usr/share/bash-completion/", "usr/share/heddle/javascript/"),
}
THERE = ("etc/heddle/heddled.toml", "usr/bin/heddled", "usr/share/man/man8/heddled.8.gz",
         "usr/share/man/man1/heddle-policy.1.gz", "usr/share/heddle/policies/gapfill.lua",
         "usr/share/doc/heddle/daemon/OPERATING.md", "usr/share/zsh/vendor-completions/_heddle",
         "usr/lib/heddle/libcuda.so.1", "usr/lib/heddle/with-libasan.so",
         "usr/libexec/heddle/heddle-demo", "usr/libexec/heddle/heddle-stop-probe")
EXPOSURE_MAX = 3.0


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def check_contents(out, root):
    for name in NAMES:
        deb, = out.glob(f"{name}_*.deb")
        alone = out / name
        version = run("dpkg-deb", "--field", deb, "Version").strip()
        assert version == run(DIST / "bin/heddled", "--version").split()[1] + "-1", version
        run("dpkg-deb", "-R", deb, alone)
        run("dpkg-deb", "-x", deb, root)
        for path in alone.rglob("*"):
            inside = str(path.relative_to(alone))
            if not path.is_dir() and not inside.startswith(("DEBIAN/", f"usr/share/doc/{name}/")):
                assert inside.startswith(PLACES[name]), f"{name}: {inside}"
        for script in ("postinst", "prerm", "postrm"):
            if (alone / "DEBIAN" / script).exists():
                run("sh", "-n", alone / "DEBIAN" / script)
    assert (out / "heddle/DEBIAN/conffiles").read_text() == "/etc/heddle/heddled.toml\n"
    for path in THERE:
        assert (root / path).exists(), path
    assert run(root / "usr/bin/heddled", "--version") == run(DIST / "bin/heddled", "--version")


def check_links(root):
    manual = root / "usr/share/doc/heddle"
    pages = list(manual.rglob("*.md"))
    assert len(pages) > 20, pages
    for page in pages:
        for target in re.findall(r"\]\(([^()\s#]+)[^()\s]*\)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), f"{page}: {target}"


def check_pages(root):
    """Of each page the NAME says what the program does; so does that of a script of Python's."""
    for page in (root / "usr/share/man/man1").glob("*.gz"):
        lines = gzip.decompress(page.read_bytes()).decode().splitlines()
        name = lines[lines.index(".SH NAME") + 1]
        assert re.match(r"heddle\S* \\- [A-Za-z]", name) and "usage" not in name, f"{page}: {name}"
    text = gzip.decompress((root / "usr/share/man/man1/heddle-try.1.gz").read_bytes()).decode()
    assert ".SS Options" in text and "\\-\\-seconds" in text, text


def check_completion(root):
    file = root / "usr/share/bash-completion/completions/heddle"
    for words, wanted in (("heddle policy lo", "load"), ("heddle run --cl", "--class"),
                          ("/usr/bin/heddle --socket S do", "doctor")):
        script = (f". {file}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
                  '_heddle "${COMP_WORDS[0]}"; echo "${COMPREPLY[@]}"')
        assert run("bash", "-c", script).split() == [wanted], words


def check_units(root):
    for name, command in (("heddled", "/usr/bin/heddled\n"),
                          ("heddle-metrics", "/usr/bin/heddle metrics --listen ")):
        check_unit(root / f"usr/lib/systemd/system/{name}.service", command)
    text = (root / "usr/lib/systemd/system/heddled.service").read_text()
    assert re.findall("ExecReload=(.*)", text) == ["/usr/bin/heddled --check",
                                                   "/bin/kill -HUP $MAINPID"], text
    comment = (root / "usr/lib/tmpfiles.d/heddle.conf").read_text().splitlines()[0]
    assert re.match("# [A-Z]", comment), comment


def check_unit(unit, command):
    assert f"ExecStart={command}" in unit.read_text()
    assert "/opt/" not in unit.read_text()
    if not shutil.which("systemd-analyze"):
        return print("no systemd-analyze here: the unit's exposure is not judged")
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    exposure = float(re.search(r"Overall exposure level for .*: ([0-9.]+)", said)[1])
    assert exposure <= EXPOSURE_MAX, said


def check_lintian(out):
    if not shutil.which("lintian"):
        return print("no lintian here: the packages are not linted")
    # What the third holds is as in these, and takes lintian as long again.
    run("lintian", "--fail-on", "error", "--allow-root", *out.glob("heddle_*"),
        *out.glob("libheddle-shim_*"))


def main():
    if not (DIST / "share/man").exists():
        print("dist/ is not installed: cmake --install build/release")
        sys.exit(77)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="heddle-"))
    try:
        out = folder / "packages"
        run("sh", ROOT / "examples/packages/make.sh", DIST, out,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "GENERATORS": "DEB"})
        check_contents(out, folder / "root")
        check_links(folder / "root")
        check_pages(folder / "root")
        check_completion(folder / "root")
        check_units(folder / "root")
        check_lintian(out)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
