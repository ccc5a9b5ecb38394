"""The pages for tenants and operators, in a real browser, against the API behind its real server.

`RECORD_DOCS=1 pytest` on this file takes the pictures of the documents anew.
"""

import base64
import os
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from selenium import webdriver
from selenium.common.exceptions import JavascriptException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from gpuclusters.lease.model import GPU_LEASE
from tests.caas.api.apikit import (
    PATIENCE_SECONDS,
    Api,
    FakeCluster,
    lease,
    listening,
    node,
    played,
    tenancy,
)
from tests.fixtures.tables import beside

PICTURES = Path(__file__).resolve().parents[3] / "docs" / "pictures"
WORLD = beside(__file__, "world.yaml")
GROUP = "gpu-operators"
HOSTILE = "<img src=x onerror='document.title=\"taken\"'><script>document.title='taken'</script>"
WIDTH = 1280
SCALE = 0.75
PHONE = 390
browsers = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="chromium and chromedriver are not on PATH",
)


@played
async def test_a_page_loads_from_its_own_origin_and_says_nothing_without_a_token(
    api: Api,
) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/operators", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
    ):
        answer = await api.client.get(path)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith(kind)
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} <= set(policy)
        assert not [rule for rule in policy if "unsafe" in rule or "*" in rule or "http" in rule]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert not re.findall(r"https?://|//[a-z]", re.sub(r"^// .*$", "", answer.text, flags=re.M))
        assert "acme" not in answer.text


def filled() -> FakeCluster:
    """The cluster of `world.yaml`."""
    cluster = FakeCluster()
    for one in WORLD["tenancies"]:
        cluster.put("tenancies", tenancy(**one))
    where = {"name": "tenant", "namespace": "tenant-acme"}
    cluster.put("resourcequotas", {"metadata": where, "status": WORLD["used"]})
    cluster.put("nodes", node("hgx-02", cordoned=True))
    for host, stated in WORLD["leases"].items():
        for module in range(1, 9):
            since = {"since": f"2026-11-24T0{module}:12:30Z"}
            cluster.put("gpuleases", lease(host, module, **since | stated.get(module, {})))
    return cluster


async def containers(api: Api) -> None:
    """Those of acme are made, and come as far as they shall."""
    for one in WORLD["containers"]:
        made = await api.made(**one["asked"])
        if "state" in one:
            await api.become(made, one["phase"], one["state"])
    losses = ((1, "0.42"), (2, "0.31"), (3, "0.27"))
    api.cluster.logs = [f"epoch {number}: loss {loss}\n".encode() for number, loss in losses]


@dataclass
class Browser:
    """A page as its reader has it before them; the API is behind its real server, on loopback."""

    driver: webdriver.Chrome
    url: str
    api: Api
    portal: BlockingPortal

    def open(self, path: str, who: str | None, token: str = "") -> None:
        """Come to a page anew and sign in, as a tenant or as an operator."""
        self.looks()
        self.driver.get(f"{self.url}{path}")
        self.driver.execute_script("sessionStorage.clear()")
        self.driver.get(f"{self.url}{path}")
        groups = None if who else [GROUP]
        self.find("#token").send_keys(token or self.api.issuer.token(who, groups=groups))
        self.find("#login button").click()

    def looks(self, width: int = WIDTH, *, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width == PHONE}
        self.cdp("Emulation.setDeviceMetricsOverride", **size)

    def cdp(self, command: str, **given: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, given)

    def find(self, selector: str) -> WebElement:
        """The first that is shown, as soon as there is one."""

        def shown(driver: webdriver.Chrome) -> WebElement | None:
            found = driver.find_elements(By.CSS_SELECTOR, selector)
            return next((one for one in found if one.is_displayed()), None)

        found = WebDriverWait(self.driver, PATIENCE_SECONDS, 0.05).until(shown, selector)
        assert found
        return found

    def text(self, selector: str = "main") -> str:
        return self.find(selector).text

    def table(self, caption: str) -> list[list[str]]:
        """The cells of the table with this caption, head first."""
        for table in self.driver.find_elements(By.TAG_NAME, "table"):
            if caption in table.find_element(By.TAG_NAME, "caption").text:
                rows = table.find_elements(By.TAG_NAME, "tr")
                return [
                    [c.text for c in row.find_elements(By.CSS_SELECTOR, "th,td")] for row in rows
                ]
        raise AssertionError(f"no table {caption}")

    def picture(self, name: str) -> None:
        """The whole page as it is; becomes the document's picture on demand, else is held against it."""
        clip = {**self.cdp("Page.getLayoutMetrics")["cssContentSize"], "scale": SCALE}
        taken = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        content, kept = base64.b64decode(taken["data"]), PICTURES / name
        if os.environ.get("RECORD_DOCS"):
            kept.write_bytes(content)
        (width,) = struct.unpack(">I", kept.read_bytes()[16:20])
        assert width == struct.unpack(">I", content[16:20])[0] == SCALE * WIDTH


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    # A container's root has no sandbox, and little /dev/shm.
    wanted = "headless=new no-sandbox disable-dev-shm-usage hide-scrollbars disable-lcd-text"
    for argument in wanted.split():
        options.add_argument(f"--{argument}")
    options.binary_location = str(shutil.which("chromium"))
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(PATIENCE_SECONDS)
    hosts = {"hgx-01": {"partitions": [1, 5, 6]}, "hgx-02": {"declaredLayout": False}}
    made = listening(filled(), hosts=hosts, operatorGroup=GROUP)
    try:
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(made) as (api, port),
        ):
            portal.call(containers, api)
            yield Browser(driver, f"http://127.0.0.1:{port}", api, portal)
    finally:
        driver.quit()


@browsers
def test_a_tenant_sees_its_containers_its_quota_and_its_logs(browser: Browser) -> None:
    browser.open("/", "acme")
    assert browser.text("h1") == "acme"
    head, *rows = browser.table("including those that ended")
    assert head == ["Container", "State", "GPUs", "Image", "Started or requested", "Reason", "Log"]
    shown = {row[0]: (row[1], row[2], row[5]) for row in rows}
    assert shown.keys() == {"training", "evaluation", "notebook"}
    assert shown["training"] == ("running", "2", "")
    assert shown["evaluation"] == ("failed", "1", "Error: exit code 1")
    assert ["requests.nvidia.com/pgpu", "3", "8"] in browser.table("Limits of all containers")
    assert "globex" not in browser.driver.page_source
    assert browser.driver.get_log("browser") == []


@browsers
@pytest.mark.attack(
    by="a tenant",
    tries="run a script in the page of whoever looks, by a log, a reason or a name with markup",
    stopped_by="text becomes text nodes; the page's policy takes no script but its own, and no markup",
)
def test_markup_of_others_is_shown_as_text(
    browser: Browser, request: pytest.FixtureRequest
) -> None:
    def say(text: str) -> None:
        cluster = browser.api.cluster
        cluster.logs[3:] = [text.encode()]
        found = cluster.server.there(GPU_LEASE, "hgx-01-gpu1")
        said = {**found, "status": {**found["status"], "message": text}}
        browser.portal.call(browser.api.happens, "gpuleases", said)

    say(HOSTILE)
    request.addfinalizer(lambda: say(""))
    browser.open("/", "acme")
    browser.find("button[aria-label='Log of training']").click()
    assert HOSTILE in browser.text("pre")
    browser.open("/operators", None)
    browser.find("h1")
    assert HOSTILE in browser.text()
    assert browser.driver.find_elements(By.CSS_SELECTOR, "main img, main script") == []
    assert browser.driver.title == "Cluster – gpu-clusters"
    with pytest.raises(JavascriptException, match="TrustedHTML"):
        browser.driver.execute_script("document.body.innerHTML = arguments[0]", HOSTILE)
    blocked = browser.driver.execute_async_script(
        "const done = arguments[0];"
        "addEventListener('securitypolicyviolation', event => done(event.effectiveDirective));"
        "fetch('https://elsewhere.example/').catch(() => {})"
    )
    assert blocked == "connect-src"


@browsers
def test_operators_see_machines_leases_tenants_and_drift(browser: Browser) -> None:
    browser.open("/operators", None)
    assert browser.text("h1") == "Cluster test"
    _, *rows = browser.table("Leases of hgx-01")
    assert [row[1] for row in rows] == [
        *["Free"] * 4, "Leased", "Quarantined", "Leased", "Scrubbing",
    ]  # fmt: skip
    assert rows[4][2:5] == ["2026-11-24 05:12:30 UTC", "acme", "c-5b1e0a"]
    assert rows[5][5].startswith("FirmwareChanged: ")
    cut = [one.text for one in browser.driver.find_elements(By.CSS_SELECTOR, ".board > li > .soft")]
    assert cut[:3] == ["partition 1: free", "partition 5: busy", "partition 6: broken"]
    assert cut[3:5] == ["partition 3: busy", "partition 8: busy"]
    assert "Cordoned: hgx-02 is cordoned" in browser.text()
    tenants = browser.table("in all")
    assert [row[:2] for row in tenants[1:]] == [
        ["acme", "ready"],
        ["globex", "ready"],
        ["initech", "QuotaNotEnforced"],
    ]
    assert browser.table("As far as Kubernetes")[1][0] == "GPU hgx-01-gpu6"


@browsers
@pytest.mark.parametrize(
    ("path", "who", "said"),
    [
        ("/operators", "acme", "does not name the operators' group"),
        ("/", None, "the token is an operator's and names no tenant"),
        ("/", "stranger", "has no tenancy in this cluster"),
    ],
)
def test_whoever_may_not_look_is_told_so_and_nothing_else(
    browser: Browser, path: str, who: str | None, said: str
) -> None:
    browser.open(path, who)
    assert said in browser.text("#problem:not(:empty)")
    assert browser.driver.find_elements(By.CSS_SELECTOR, "#content *") == []


@browsers
def test_a_token_is_forgotten_when_it_is_refused_or_somebody_signs_out(browser: Browser) -> None:
    kept = "return sessionStorage.length + localStorage.length + document.cookie.length"
    browser.open("/", None, "nonsense")
    assert "no signed JSON Web Token" in browser.text("#problem:not(:empty)")
    assert browser.find("#login")
    assert browser.driver.execute_script(kept) == 0
    browser.open("/", "acme")
    browser.find("h2")
    assert browser.driver.execute_script(kept) == 1
    assert "eyJ" not in browser.driver.current_url
    assert browser.find("#token, #refresh").get_attribute("id") == "refresh"
    browser.find("#sign-out").click()
    assert browser.find("#login")
    assert browser.driver.execute_script(kept) == 0
    assert "training" not in browser.driver.page_source


# The contrast of each text with what is behind it, as WCAG 2.2 counts it (1.4.3), where it is too low.
_FAINT = """
const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
const light = (color) => numbers(color).slice(0, 3).map((n) => n / 255)
  .map((n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4))
  .reduce((sum, n, at) => sum + n * [0.2126, 0.7152, 0.0722][at], 0);
const behind = (node) => {
  const color = getComputedStyle(node).backgroundColor;
  return numbers(color)[3] === 0 ? behind(node.parentElement) : color;
};
return [...document.querySelectorAll("body *")]
  .filter((node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim()))
  .filter((node) => node.offsetParent)
  .map((node) => [node.textContent, light(getComputedStyle(node).color), light(behind(node))])
  .map(([text, a, b]) => [text, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)])
  .filter(([, contrast]) => contrast < 4.5);
"""
_WIDE = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@browsers
@pytest.mark.parametrize(
    ("path", "who", "name"), [("/", "acme", "tenant"), ("/operators", None, "operators")]
)
def test_every_page_can_be_read(browser: Browser, path: str, who: str | None, name: str) -> None:
    browser.open(path, who)
    browser.find("h1")
    if who:
        browser.find("button[aria-label='Log of training']").click()
        browser.find("pre")
    run = browser.driver.execute_script
    unnamed = "table:not(:has(caption)):not(:has(th[scope=col]))"
    assert browser.driver.find_elements(By.CSS_SELECTOR, unnamed) == []
    for scheme, color in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(15, 20, 26)")):
        for width in (WIDTH, PHONE):
            browser.looks(width, dark=scheme == "dark")
            assert run("return getComputedStyle(document.body).backgroundColor") == color
            assert run("return innerWidth") == width
            assert run(_FAINT) == []
            assert run(_WIDE) == 0, "it scrolls sideways"
            if width == WIDTH:
                browser.picture(f"page-{name}-{scheme}.png")
