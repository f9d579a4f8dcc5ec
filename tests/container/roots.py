"""Root filesystems of an old and a new distribution: a C library each, kept in .deps, or whole."""

import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

# The glibc that shim and program meet there.
RELEASES = {"bullseye": "2.31", "trixie": "2.41"}
# A namespace of mounts; of users too where this is not root.
UNSHARE = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])


class NoRoot(RuntimeError):
    """There is no root filesystem, and why: no privileges, no mirror."""


def fetch_libc(release, into):
    """libc6 of a release; debootstrap knows the machine's mirror and its keys."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="heddle-root-"))
    try:
        made = subprocess.run(["debootstrap", "--foreign", "--variant=minbase", release, work],
                              capture_output=True, text=True)
        packages = list((work / "var/cache/apt/archives").glob("libc6_*.deb"))
        if made.returncode or not packages:
            raise NoRoot(f"debootstrap {release}: {(made.stdout + made.stderr).strip()[-200:]}")
        unpacked = into.with_suffix(".new")
        subprocess.run(["dpkg", "-x", packages[0], unpacked], check=True)
        unpacked.rename(into)
    except OSError as error:
        raise NoRoot(f"debootstrap: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def fresh(deps, release, where):
    """A copy of the release's root filesystem at `where`, for a container to write into."""
    # The shim's sysroot is bullseye already.
    kept = deps / release if (deps / release).is_dir() else deps / "roots" / release
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        fetch_libc(release, kept)
    shutil.rmtree(where, ignore_errors=True)
    for part in ("lib", "lib64", "usr/lib/x86_64-linux-gnu", "usr/lib64"):
        if (kept / part).is_symlink() or not (kept / part).is_dir():
            continue
        shutil.copytree(kept / part, where / part, symlinks=True,
                        ignore=shutil.ignore_patterns("*.a", "*.o", "gconv", "gcc"))
    for part in ("lib", "lib64"):  # where /usr is merged
        target = where / "usr" / part
        if not (where / part).exists() and target.is_dir():
            (where / part).symlink_to(f"usr/{part}")
    return with_places(where)


def copied(whole, where):
    """The same of a distribution's own root filesystem."""
    shutil.rmtree(where, ignore_errors=True)
    where.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", whole, where], check=True)
    return with_places(where)


def inside(root, sockets, command, mounts=()):
    """The words that run `command` in a root filesystem, with `sockets` as its /tmp and more of
    the shell's `mounts`."""
    lines = [f"mount --rbind /proc {root}/proc", f"mount --bind {sockets} {root}/tmp", *mounts,
             f"exec chroot {root} {shlex.join(map(str, command))}"]
    return [*UNSHARE, "sh", "-ec", "\n".join(lines)]


def with_places(where):
    for part in ("etc", "proc", "tmp", "usr/lib/heddle", "run/heddle", "usr/local/cuda/compat"):
        (where / part).mkdir(parents=True, exist_ok=True)
    return where
