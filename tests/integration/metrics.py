#!/usr/bin/env python3
"""heddle metrics on the simulated GPU, from an installed tree: printed, written, served, and as a
Prometheus takes it. Every metric that the dashboard and the alert rules name is there. What needs
promtool or prometheus (tests/setup.sh --prometheus) says that it was skipped without them."""

import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402

RULES = ROOT / "examples/prometheus/heddle.rules.yml"
DASHBOARD = ROOT / "examples/grafana/heddle.json"
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")


def heddle(where, *arguments, code=0):
    done = subprocess.run([stage.HEDDLE, *map(str, arguments)], env=where.env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout


def expressions():
    """What the dashboard asks, with its variables filled in as Grafana does."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m").replace("$gpu", ".*")\
                .replace("$instance", ".*")


def check_names(page):
    metrics = set(re.findall(r"^(heddle_\w+)[{ ]", page, re.M))
    asked = set(re.findall(r"\bheddle_\w+", " ".join(expressions()) + RULES.read_text()))
    assert len(asked) > 15 and asked <= metrics, asked - metrics


def check_served(where, *flags, scrape=None):
    server = subprocess.Popen([stage.HEDDLE, "metrics", "--listen", "127.0.0.1:0", *flags],
                              env=where.env, stdout=subprocess.PIPE, text=True)
    try:
        said = server.stdout.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/metrics", said)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        page = answer.read().decode()
        assert answer.status == 200 and "version=0.0.4" in answer.getheader("Content-Type")
        assert "heddle_up 1\n" in page, page
        uid = re.search(r"^Uid:\s+(\d+)", pathlib.Path(f"/proc/{server.pid}/status").read_text(),
                        re.M)[1]
        assert uid != "0" or flags, "it serves as root"
        whose = 'label="batch"' in page
        assert whose == (uid == str(os.geteuid())), "it tells who its user may not know"
        if scrape:
            scrape(where, port)
    finally:
        server.terminate()
        assert server.wait(20) == 0


def scraped(where, port):
    """A real Prometheus scrapes it, and each expression of the dashboard returns data."""
    if PROMETHEUS is None:
        print("no prometheus here: nothing was scraped")
        return
    config = where.folder / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
                      f"rule_files: [{RULES}]\n"
                      "scrape_configs:\n"
                      "  - {job_name: heddle, static_configs: "
                      f"[{{targets: ['127.0.0.1:{port}']}}]}}\n")
    store = where.folder / "prometheus"
    shutil.rmtree(store, ignore_errors=True)
    port = 39_000 + where.gpus  # it does not say which it would choose
    with open(where.folder / "prometheus.log", "w") as log:
        prometheus = subprocess.Popen(
            [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={store}",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        def query(expression):
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode(
                {"query": expression})
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    return json.load(answer)["data"]["result"]
            except OSError:
                return None
        for expression in expressions():
            stage.wait_until(lambda: query(expression), 40, f"data for {expression}")
    finally:
        prometheus.terminate()
        prometheus.wait(20)


def check(where):
    assert heddle(where, "metrics", code=3).endswith("heddle_up 0\n"), "without a daemon"
    where.start_daemon("gapfill")
    demos = [where.start_demo(role, "demo", 1, 30 if PROMETHEUS else 2, 0, managed=True)
             for role in stage.CLASSES]

    def busy():
        page = heddle(where, "metrics")
        waited = re.findall(r'^heddle_client_wait_seconds_count{.*label="batch".*} (\d+)', page,
                            re.M)
        return page if waited and int(waited[0]) > 20 else None

    page = stage.wait_until(busy, 20, "grants")
    check_names(page)
    assert re.search(r'^heddle_policy_info{name="gapfill",.*} 1$', page, re.M), page
    for hook in ("enqueue", "dispatch"):
        took = re.search(r'^heddle_policy_hook_seconds_count{policy="gapfill",hook="%s",gpu_uuid="'
                         r'[^"]+"} (\d+)$' % hook, page, re.M)
        assert took and int(took[1]) >= 16, page  # one call in 16 is timed, for all of them
    text = where.folder / "heddle.prom"
    assert heddle(where, "metrics", "--textfile", text) == ""
    assert "heddle_up 1\n" in text.read_text()
    heddle(where, "metrics", "--textfile", where.folder / "none/x", code=1)
    heddle(where, "metrics", "--listen", "nowhere", code=1)
    if PROMTOOL:
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, text=True,
                              capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        done = subprocess.run([PROMTOOL, "check", "rules", RULES], text=True, capture_output=True,
                              timeout=60)
        assert done.returncode == 0, done.stderr
    else:
        print("no promtool here: neither metrics nor rules were checked by it")
    where.sockets.chmod(0o755)  # as /run/heddle
    check_served(where, "--all-users")
    check_served(where, scrape=scraped)
    for demo in demos:
        demo.finish()


where = setting.fresh_stage("metrics")
setting.run(lambda: check(where), where)
