#!/bin/bash
# From a clean clone to one line: sets up, builds and installs the release, runs every test that
# needs no GPU, then the unit and integration tests of core, ipc and server again under ASan +
# UBSan, with the fuzz targets where there is libFuzzer, and the tests that have threads under TSan.
#
#   tests/run.sh            the last line reads 'N passed, N failed' (', N skipped')
#   JOBS=1 tests/run.sh     with less than all cores
#   tests/run.sh --help     this text
set -uo pipefail
case ${1:-} in
  '') ;;
  -h | --help) sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"; exit 0 ;;
  *) echo "tests/run.sh: no option '$1': it takes none but --help" >&2; exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
jobs=${JOBS:-$(nproc)}
started=$SECONDS
passed=0 failed=0 skipped=0 flickered=0

step() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - started)); }

# Runs a command; what it prints is kept in build/run.log and shown only when it fails.
quietly() {
  if ! "$@" >build/run.log 2>&1; then
    tail -n 60 build/run.log
    echo "failed: $*"
    return 1
  fi
}

# ctest's own words go to the terminal; the numbers come from its JUnit file.
run_tests() {
  local preset=$1 report=$PWD/build/$1/junit.xml status=0 tests failures skips
  shift
  rm -f "$report"
  ctest --preset "$preset" -j "$jobs" --output-junit "$report" "$@" || status=$?
  tests=$(grep -o '<testcase ' "$report" | wc -l)
  failures=$(failures_in "$report")
  skips=$(grep -oE 'status="(notrun|disabled)"' "$report" | wc -l)
  [ "$failures" = 0 ] || failures_of "$preset" "$report" >>build/failures
  passed=$((passed + tests - failures - skips))
  failed=$((failed + failures))
  skipped=$((skipped + skips))
  if [ "$preset" = release ] && [ "$failures" -gt 0 ] && [ "$failures" -le 3 ]; then
    once_more "$failures"
  fi
  # A test whose binary is not there counts as not run, and no test at all as fine: neither is.
  if [ "$tests" = 0 ] || { [ "$status" != 0 ] && [ "$failures" = 0 ]; }; then
    failed=$((failed + 1))
  fi
}

failures_in() { grep -o 'status="fail"' "$1" | wc -l; }

# Up to three release tests that failed run again, alone: the host may have been too busy for a
# bound of time. One that passes then flickers. That is a fault of it or of heddle, and the end of
# the run shows it as it shows a failure, but it does not fail the run. The sanitizers' tests get no
# second run: what they find is there.
once_more() {
  local report=$PWD/build/release/junit-again.xml healed
  step "release: $1 failed; once more, alone"
  ctest --preset release --rerun-failed --output-junit "$report"
  healed=$(($(grep -o 'status="run"' "$report" | wc -l)))
  passed=$((passed + healed))
  failed=$((failed - healed))
  flickered=$((flickered + healed))
}

# Each failed test with the end of what it printed: the last screen of a run says what is wrong.
failures_of() {
  python3 - "$1" "$2" <<'END'
import sys
import xml.etree.ElementTree as tree
for case in tree.parse(sys.argv[2]).getroot().iter("testcase"):
    if case.get("status") == "fail":
        printed = (case.findtext("system-out") or "").rstrip().splitlines()[-25:]
        print(f"\nfailed in {sys.argv[1]}: {case.get('name')}", *printed, sep="\n    ")
END
}

build() {
  local preset=$1
  shift
  quietly cmake --preset "$preset" && quietly cmake --build --preset "$preset" -j "$jobs" "$@"
}

has_fuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer - -o build/has_fuzzer >build/run.log 2>&1
}

mkdir -p build
: >build/failures
step "set-up"
if tests/setup.sh --plots; then
  step "release: build and install"
  if build release --target all tests/all && rm -rf dist &&
     quietly cmake --install build/release; then
    step "release: tests"
    if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
      run_tests release -LE night
    else
      gpu=$(ctest --preset release -N -L gpu | sed -n 's/^Total Tests: //p')
      skipped=$((skipped + ${gpu:-0}))
      echo "no NVIDIA GPU here: ${gpu:-0} tests with the label gpu are skipped"
      run_tests release -LE 'gpu|night'
    fi
  else
    failed=$((failed + 1))
  fi
  address=fuzz
  if ! has_fuzzer; then
    echo "no libFuzzer here: the tests with the label fuzz are skipped (clang, libclang-rt-dev)"
    address=asan
    skipped=$((skipped + 5))
  fi
  for preset in $address tsan; do
    step "$preset: core, ipc and server; unit and integration tests"
    if build "$preset" --target heddle_tests; then
      run_tests "$preset" -LE night
    else
      failed=$((failed + 1))
    fi
  done
else
  failed=1
fi

cat build/failures
echo
summary="$passed passed, $failed failed"
[ "$skipped" = 0 ] || summary="$summary, $skipped skipped"
[ "$flickered" = 0 ] || echo "$flickered that passed had failed once, and flicker: see above"
echo "$summary"
[ "$failed" = 0 ]
