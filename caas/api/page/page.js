// Shows what the API answers. Text of others becomes text nodes, never markup.
const KEY = "token";
const LOG_LINES = 500;
const GOOD = { Free: "ok", free: "ok", running: "ok", succeeded: "ok", Leased: "busy", Reserved: "busy", Activating: "busy",
  reserving: "busy", starting: "busy", busy: "busy", Quarantined: "bad", failed: "bad", broken: "bad", unschedulable: "look" };
const operators = location.pathname === "/operators";
const at = (id) => document.getElementById(id);

class Refusal extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

async function ask(path) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` };
  const answer = await fetch(`/v1/${path}`, { headers })
    .catch(() => { throw new Refusal(0, "The API does not answer; refresh to try again."); });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Refusal(answer.status, said.detail ?? `the API answers ${answer.status}`);
}
const read = async (path) => (await ask(path)).json();

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}
const time = (text) => text && make("time", { datetime: text }, text.replace("T", " ").replace(/(:\d\d)(\.\d+)?Z$/, "$1 UTC"));
const word = (text) => text && make("span", { class: GOOD[text] ?? "look" }, text);
const list = (...parts) => parts.filter((part) => part !== null && part !== undefined && part !== "").join(": ");

const long = (cell) => (String(cell).length > 44 ? "long" : "");

// Roles are written out: as cards, on a phone, tables lose them in some browsers.
function table(caption, heads, rows, none) {
  if (!rows.length) return make("p", { class: "soft" }, none);
  const head = heads.map((text) => make("th", { scope: "col", role: "columnheader" }, text));
  const lines = rows.map(([first, ...others]) => make("tr", { role: "row" },
    make("th", { scope: "row", role: "rowheader", class: long(first) }, first),
    ...others.map((cell, index) => make("td", { role: "cell", class: long(cell), "data-label": heads[index + 1] }, cell))));
  return make("table", { role: "table" }, make("caption", {}, caption),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...head)), make("tbody", { role: "rowgroup" }, ...lines));
}

function numbers(values) {
  return make("dl", { class: "numbers" },
    ...Object.entries(values).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function share({ used, quota }) {
  const meter = quota ? make("meter", { min: 0, max: quota, value: used, "aria-label": "GPUs in use" }) : null;
  return make("span", { class: "share" }, meter, ` ${used} of ${quota}`);
}

async function tenant() {
  const tenancy = await read("tenancy");
  const containers = [];
  let page = { next: "" };
  while (page.next !== null) {
    page = await read(`containers?limit=500${page.next && `&cursor=${encodeURIComponent(page.next)}`}`);
    containers.push(...page.items);
  }
  const log = make("section", { "aria-live": "polite" });
  const rows = containers.map((one) => {
    const button = make("button", { type: "button", "aria-label": `Log of ${one.name ?? one.id}` }, "Log");
    button.addEventListener("click", () => guarded(() => show(one, log)));
    return [make("span", { title: one.id }, one.name ?? one.id), word(one.state), one.gpus, one.image, time(one.startedAt ?? one.createdAt),
      list(one.reason, one.message, one.exitCode === null ? null : `exit code ${one.exitCode}`), button];
  });
  const quota = Object.entries(tenancy.quota).map(([name, most]) => [name, tenancy.used[name], most]);
  return [
    make("h1", {}, tenancy.tenant),
    make("p", {}, ...(tenancy.ready ? [make("span", { class: "ok" }, "Ready"), ": its isolation is enforced"]
      : [make("span", { class: "bad" }, "Not ready"), `: ${tenancy.reason}; nothing starts`])),
    make("p", {}, "GPUs: ", share(tenancy.gpus)),
    make("h2", {}, "Containers"),
    table(`${containers.length} of at most ${tenancy.maxContainers}, including those that ended`,
      ["Container", "State", "GPUs", "Image", "Started or requested", "Reason", "Log"], rows, "No containers."),
    log,
    make("h2", {}, "Quota"),
    table("Limits of all containers together", ["Resource", "Used", "Allowed"], quota, "No quota."),
  ];
}

async function show(container, log) {
  const name = container.name ?? container.id;
  const text = await (await ask(`containers/${encodeURIComponent(container.id)}/logs?tail=${LOG_LINES}`)).text();
  log.replaceChildren(make("h2", {}, `Log of ${name}`), make("p", { class: "soft" }, `The last ${LOG_LINES} lines at most.`),
    make("pre", { tabindex: 0, "aria-label": `Log of ${name}` }, text || "(empty)"));
}

function board(machine) {
  const parts = machine.partitions.map((part) => make("li", { class: GOOD[part.state] },
    make("span", { class: "soft" }, part.id === null ? "no partition" : `partition ${part.id}: ${part.state}`),
    make("ul", {}, ...part.gpus.map((gpu) => make("li", { class: GOOD[gpu.phase] ?? "look" },
      make("b", {}, `GPU ${gpu.module}`), make("span", {}, gpu.phase ?? "no lease"), make("span", {}, gpu.tenant ?? ""))))));
  const rows = machine.partitions.flatMap((part) => part.gpus).sort((a, b) => a.module - b.module).map((gpu) =>
    [`GPU ${gpu.module}`, word(gpu.phase) ?? "no lease", time(gpu.since), gpu.tenant, gpu.container, list(gpu.reason, gpu.message)]);
  return make("section", {},
    make("h3", {}, machine.name, make("span", { class: "soft" }, ` ${machine.baseboard}`)),
    machine.outage && make("p", {}, make("span", { class: "look" }, machine.outage), `: ${machine.message}; nothing new starts on it`),
    make("ul", { class: "board", "aria-label": `Board of ${machine.name}` }, ...parts),
    table(`Leases of ${machine.name}`, ["GPU", "Phase", "Since", "Tenant", "Container", "Reason"], rows, "No GPUs."));
}

async function cluster() {
  const said = await read("cluster");
  const { gpus } = said;
  const others = gpus.free + gpus.unschedulable + gpus.recycling + gpus.quarantined;
  const tenants = said.tenants.map((one) => [one.tenant, one.ending ? word("ending") : make("span", { class: one.ready ? "ok" : "bad" }, one.ready ? "ready" : one.reason),
    one.namespace, share(one.gpus), Object.entries(one.containers).map(([state, count]) => `${count} ${state}`).join(", ")]);
  return [
    make("h1", {}, `Cluster ${said.cluster}`),
    numbers({ GPUs: gpus.total, "in use": gpus.total - others, free: gpus.free, unschedulable: gpus.unschedulable, recycling: gpus.recycling, quarantined: gpus.quarantined }),
    make("h2", {}, "Drift"),
    table("As far as Kubernetes knows", ["Object", "Difference"], said.drift.map((one) => [one.object, one.problem]), "None, as far as Kubernetes knows."),
    make("p", { class: "soft" }, "Files, drivers and partitions on the machines: gpu-clusters drift."),
    make("h2", {}, "Tenants"),
    table(`${tenants.length} in all`, ["Tenant", "Isolation", "Namespace", "GPUs in use", "Containers"], tenants, "No tenants."),
    make("h2", {}, "Machines"),
    ...said.machines.map(board),
  ];
}

function signedIn(yes) {
  at("login").hidden = yes;
  at("session").hidden = !yes;
  if (yes) return;
  sessionStorage.removeItem(KEY);
  at("content").replaceChildren();
  at("token").focus();
}

async function guarded(act) {
  at("problem").textContent = "";
  try {
    await act();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    at("problem").textContent = error.message;
    if (error.status === 401) signedIn(false);
  }
}

const refresh = () => guarded(async () => {
  signedIn(true);
  at("content").replaceChildren(...(await (operators ? cluster() : tenant())),
    make("p", { class: "soft" }, "As of ", time(new Date().toISOString())));
});

document.title = `${operators ? "Cluster" : "Containers"} – gpu-clusters`;
document.querySelector(`nav a[href="${operators ? "/operators" : "/"}"]`).setAttribute("aria-current", "page");
at("refresh").addEventListener("click", refresh);
at("sign-out").addEventListener("click", () => guarded(() => signedIn(false)));
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("token").value.trim());
  at("token").value = "";
  refresh();
});
if (sessionStorage.getItem(KEY)) refresh(); else signedIn(false);
