"""The dashboard's picture in docs: a run of the lab, asked by Prometheus' own engine what the panels ask.

    GPU_CLUSTERS_PICTURE=docs/dashboard.svg pytest -n0 bench/test_dashboard.py

Controllers, API and device plugins are those of the whole lab, and are read every two seconds while two
tenants come and go for two and a half minutes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.picture import draw, queries
from components.caas.programs import (
    API_METRICS_PORT,
    CONTROLLERS_PORT,
    DEVICE_PLUGIN_PORT,
    LABEL,
)
from gpuclusters.cli.project import Project, read_valid
from gpuclusters.cli.reach import container_api
from lab.hosts.hardware import tenant
from lab.kubelet import reachable
from tests.e2e.conftest import Checkout, checkout
from tests.fixtures.go_programs import built

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[1]
DASHBOARD = ROOT / "components/dashboards/caas.json"
RUN_SECONDS = float(os.environ.get("BENCH_DASHBOARD_SECONDS", "150"))
EVERY_SECONDS = 2.0
STEP_SECONDS = 2.0
RATE_INTERVAL = "30s"
PORTS = {
    "controllers": CONTROLLERS_PORT,
    "api": API_METRICS_PORT,
    "device-plugin": DEVICE_PLUGIN_PORT,
}


class Scraper:
    """Reads the metrics of every program's pods again and again, as Prometheus would."""

    def __init__(self, dev: Checkout) -> None:
        found = dev.kubectl("get", "pods", "-A", "-l", "app.kubernetes.io/part-of=gpu-clusters")[
            "items"
        ]
        self._pods = [
            (pod["metadata"]["name"], reachable(pod["status"]["podIP"]), program)
            for pod in found
            for program in PORTS
            if pod["metadata"]["labels"].get(LABEL) == f"gpu-clusters-{program}"
        ]
        self._points: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = defaultdict(
            list
        )

    @property
    def programs(self) -> set[str]:
        """Those that are read."""
        return {program for _, _, program in self._pods}

    def scrape(self) -> None:
        """Read all of them once."""
        for name, address, program in self._pods:
            at = time.time()
            url = f"http://{address}:{PORTS[program]}/metrics"
            try:
                with urllib.request.urlopen(url, timeout=2) as answer:
                    text = answer.read().decode()
            except OSError:
                continue
            where = {"job": program, "pod": name, "instance": f"{address}:{PORTS[program]}"}
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name.startswith("gpu_clusters_"):
                        labels = {**sample.labels, **where, "__name__": sample.name}
                        self._points[tuple(sorted(labels.items()))].append((at, sample.value))

    def series(self) -> list[dict[str, Any]]:
        """All that was read."""
        return [{"labels": dict(key), "points": points} for key, points in self._points.items()]


class Tenants:
    """Two tenants who want more than there is, make mistakes, and go."""

    def __init__(self, dev: Checkout) -> None:
        config = read_valid(Project(dev.folder, dev.lab), "dev").section
        api = container_api(Project(dev.folder, dev.lab), config)
        assert api is not None
        self._dev = dev
        self._api = api
        self._random = random.Random(7)
        self._made: list[tuple[float, str, str]] = []

    def call(self, who: str, method: str, path: str, body: Any = None) -> Any:
        token = (self._dev.lab / "tokens" / who).read_text()
        return self._api.call(method, path, token, body)

    def act(self, at: float) -> None:
        """What happens at a moment of the run."""
        who = self._random.choice(("acme", "globex", "globex"))
        gpus = self._random.choice((1, 1, 2, 4))
        body = {"image": "registry.example.com/train:1", "gpus": gpus}
        made = self.call(who, "POST", "/v1/containers", body)
        if made.status == 201:
            self._made.append((at + self._random.uniform(6, 20), who, made.body["id"]))
        for ends, owner, container in list(self._made):
            if ends <= at:
                self.call(owner, "DELETE", f"/v1/containers/{container}")
                self._made.remove((ends, owner, container))
        self.call(who, "GET", "/v1/containers")
        self.call(who, "GET", "/v1/capacity")
        self.call(who, "GET", "/v1/containers/c-00000000000000000000")
        if self._random.random() < 0.2:
            self.call(who, "POST", "/v1/containers", {"image": "no-tag", "gpus": 3})

    def hurry(self) -> None:
        """More than the rate limit allows."""
        with ThreadPoolExecutor(16) as pool:
            for _ in range(400):
                pool.submit(self.call, "acme", "GET", "/v1/tenancy")

    def change(self, *, internet: bool) -> None:
        """The operator changes what a tenant may reach; it has to be ready anew."""
        patch = json.dumps({"spec": {"egress": {"internet": internet}}})
        self._dev.kubectl("patch", "tenancy", "acme", "--type=merge", "-p", patch)

    def tamper(self) -> bool:
        """Somebody changes the firmware of a GPU that it has."""
        for lease in self._dev.kubectl("get", "gpuleases")["items"]:
            if (lease.get("status") or {}).get("phase") == "Leased":
                spec, holder = lease["spec"], lease["status"]["holder"]
                folder = self._dev.lab / "hosts"
                tenant.use(
                    folder, spec["node"], [spec["module"]], holder["tenant"], firmware="66.6"
                )
                return True
        return False


def answers(series: list[dict[str, Any]], start: float, end: float) -> list[list[dict[str, Any]]]:
    """What Prometheus' engine says to each query of the dashboard."""
    program = built("promql", ROOT / "tests" / "promql")
    asked = {
        "series": series,
        "start": start,
        "end": end,
        "step": STEP_SECONDS,
        "queries": queries(DASHBOARD, rate_interval=RATE_INTERVAL),
    }
    done = subprocess.run(
        [program], input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=True
    )
    told: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return told


def repeated(every: float, act: Callable[[], None], ended: threading.Event) -> threading.Thread:
    def work() -> None:
        while not ended.wait(every):
            act()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_the_dashboard_of_a_run(tmp_path: Path) -> None:
    with checkout(tmp_path) as dev:
        dev.up()
        scraper, tenants = Scraper(dev), Tenants(dev)
        assert scraper.programs == set(PORTS)
        ended = threading.Event()
        reading = repeated(EVERY_SECONDS, scraper.scrape, ended)
        start = time.time()
        tampered = hurried = False
        changes = [0.2, 0.4, 0.6, 0.8]
        try:
            while (at := time.time() - start) < RUN_SECONDS:
                tenants.act(at)
                if not tampered and at > RUN_SECONDS / 3:
                    tampered = tenants.tamper()
                if not hurried and at > RUN_SECONDS / 2:
                    tenants.hurry()
                    hurried = True
                if changes and at > RUN_SECONDS * changes[0]:
                    tenants.change(internet=len(changes) % 2 == 0)
                    changes.pop(0)
                time.sleep(1)
        finally:
            ended.set()
            reading.join()
        end = time.time()
    told = answers(scraper.series(), start, end)
    minutes = f"{(end - start) / 60:.1f} minutes of the whole lab: two machines, two tenants"
    picture, empty = draw(
        DASHBOARD,
        told,
        (start, end),
        f"Not Grafana: drawn from dashboards/{DASHBOARD.name}; every value is the panel's query as "
        f"Prometheus' engine answered it (rate interval {RATE_INTERVAL}). {minutes}.",
    )
    where = Path(os.environ.get("GPU_CLUSTERS_PICTURE", tmp_path / "dashboard.svg"))
    (where if where.is_absolute() else ROOT / where).write_text(picture)
    print(f"\n{where}: {len(picture)} bytes; panels with nothing to show: {empty or 'none'}")
    assert empty == []
