"use strict";

// The page refreshes after this many milliseconds, while it is visible.
const INTERVAL = 5000;
const PAGE = 50; // objects per page
const MAX_ROOM = 1000000; // the limit of counting free addresses
const SHORT = 6; // of what is not in place

const STATES = {
  Problem: ["!", "Problem"], NotAssigned: ["○", "Not assigned"], UnderWay: ["↻", "Under way"], InPlace: ["✓", "In place"],
};
const KINDS = {
  pod: "NAMESPACE/NAME", service: "NAMESPACE/NAME", egressip: "NAME", node: "NAME", address: "192.0.2.1 or 2001:db8::1",
};

const $ = (id) => document.getElementById(id);
let token = "", asOf = null, offset = 0, entries = 12, timer = 0, round = 0, question = 0;
const shown = {}; // what each part shows, as text

// make returns an element with attributes and children; strings become text, never markup.
function make(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "click") e.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) e.setAttribute(key, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return e;
}

// replace fills a part of the page if its content has changed. The focus is kept.
function replace(id, value, children) {
  const text = JSON.stringify(value);
  if (shown[id] === text) return;
  shown[id] = text;
  const part = $(id), focused = part.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  part.replaceChildren(...children());
  if (focused) for (const e of part.querySelectorAll("[data-key]")) if (e.dataset.key === focused) { e.focus(); break; }
}

const number = (n) => n.toLocaleString("en");

function ago(time) {
  const s = Math.max(0, Math.round((Date.now() - new Date(time)) / 1000));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

// clock formats a time as in ISO 8601, without the date if it is today.
function clock(time) {
  const d = new Date(time);
  return d.toDateString() === new Date().toDateString() ? d.toLocaleTimeString("sv") : d.toLocaleString("sv");
}

// since shows when something began, rather than its age, which would change all the time.
const since = (time) => time ? make("span", { class: "muted" }, " since ", make("time", { datetime: time, title: time }, clock(time))) : null;

class Failure extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

async function ask(path, parameters) {
  const query = new URLSearchParams(Object.entries(parameters || {}).filter(([, v]) => v !== ""));
  let answer;
  try {
    answer = await fetch(`api/v1/${path}?${query}`, { headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store" });
  } catch {
    throw new Failure("What serves this page does not answer. It may have ended.", 0);
  }
  const text = await answer.text();
  if (answer.ok) return answer.headers.get("Content-Type").startsWith("text/plain") ? text : JSON.parse(text);
  let message = text;
  try { message = JSON.parse(text).message; } catch { /* not JSON: show it as it is */ }
  throw new Failure(message || `HTTP status ${answer.status}`, answer.status);
}

function banner(kind, title, text) {
  replace("banner", [kind, title, text], () => title ? [make("div", { class: `banner ${kind}` }, make("strong", {}, title), text)] : []);
}

function mark(state, count, attributes) {
  const [sign, words] = STATES[state];
  return make(attributes ? "button" : "span", { class: `state ${state}`, ...attributes },
    make("span", { "aria-hidden": "true" }, sign), count === undefined ? words : `${number(count)} ${words.toLowerCase()}`);
}

// show* fill the parts of the page.

function showStatus(s) {
  asOf = s.asOf;
  const verdict = s.inPlace ? "All of it is in place" : "Not everything is in place";
  replace("verdict", verdict, () => [verdict]);
  $("verdict").className = `verdict ${s.inPlace ? "good" : "bad"}`;
  replace("features", s.features, () => s.features.map(tile));
  const problems = new Map();
  for (const p of s.problems || []) problems.set(p.object, [...problems.get(p.object) || [], p]);
  replace("problem-list", s.problems || [], () => [...problems].slice(0, SHORT).map(([object, all]) => make("li", {}, explainLink(object, object, "problem "),
    all.map((p) => make("div", {}, make("span", { class: "tag" }, p.reason), " ", p.message, since(p.since))))));
  $("problems").hidden = !problems.size;
  const left = problems.size > SHORT || (s.notes || []).some((n) => n.startsWith("problems:"));
  replace("problem-more", left, () => left ? ["The oldest are shown; the others are among the objects."] : []);
  showMoves(s.moves || [], s.drains || []);
  showNodes(s.nodes);
  const versions = s.versions || [];
  replace("version-rows", versions, () => versions.map((v) => make("tr", {}, make("th", { scope: "row" }, v.container),
    make("td", { class: "mono", title: v.id }, v.image), make("td", { class: "number" }, number(v.pods)))));
  $("versions").hidden = !versions.length;
  replace("notes", s.notes || [], () => (s.notes || []).map((n) => make("li", {}, n)));
  const silent = (s.problems || []).find((p) => p.reason === "MasterSilent");
  if (s.outage) banner("bad", "The API server does not answer", s.outage);
  else if (silent) banner("bad", "No master runs", `${silent.message}. It last renewed its lease at ${clock(silent.since)}.`);
  else banner("", "", "");
}

function tile(f) {
  const states = (f.states || []).filter((s) => s.objects > 0);
  return make("div", { class: "tile" }, make("h3", {}, f.feature),
    f.enabled ? make("p", { class: "count" }, number(f.objects)) : make("p", { class: "empty" }, "not enabled"),
    f.enabled && f.objects === 0 ? make("p", { class: "muted" }, "There are none.") : null,
    make("ul", {}, states.map((s) => make("li", {}, mark(s.state, s.objects, {
      type: "button", "data-key": `${f.feature} ${s.state}`, "aria-label": `Show ${number(s.objects)} objects of ${f.feature}: ${STATES[s.state][1]}`,
      click: () => filter({ feature: f.feature, state: s.state, text: "", node: "" }),
    })))),
    (f.conditions || []).length ? make("details", {}, make("summary", { "data-key": `conditions ${f.feature}` }, "Conditions"),
      make("ul", {}, f.conditions.map((c) => make("li", {}, `${number(c.objects)} ${c.type} ${c.status} (${c.reason})`)))) : null);
}

// probed describes in a few words how a node answers the master's probes.
function probed(r) {
  if (!r) return "";
  if (r.state === "Reachable" && r.latencyMilliseconds) return `answers within ${number(r.latencyMilliseconds)} ms`;
  return { Reachable: "answers", Unreachable: "does not answer", Unknown: "no answer yet", NotProbed: "not probed" }[r.state] || r.state;
}

function nodeState(n) {
  const words = [n.ready ? "Ready" : "Not Ready"];
  if (n.draining) words.push("draining"); else if (n.cordoned) words.push("cordoned");
  const silent = n.reachability && n.reachability.state === "Unreachable";
  const kind = !n.ready || silent ? "NotReady" : n.draining || n.cordoned ? "cordoned" : "Ready";
  return make("span", { class: `state ${kind}` }, make("span", { "aria-hidden": "true" }, { NotReady: "!", cordoned: "↻", Ready: "✓" }[kind]), words.join(", "));
}

// room shows how many more addresses a node could take, one line per network.
function room(networks) {
  if (!networks.length) return make("span", { class: "muted" }, "none");
  return networks.map((r) => make("div", {}, r.addresses >= MAX_ROOM ? `over ${number(MAX_ROOM - 1)}` : number(r.addresses),
    make("span", { class: "muted" }, ` in ${r.network}`)));
}

// amount describes how much is being moved.
const amount = (m) => [m.addresses ? `${number(m.addresses)} EgressIP addresses` : "", m.hosts ? `${number(m.hosts)} EgressServices` : ""].filter(Boolean).join(", ");

function showMoves(moves, drains) {
  replace("moves", [moves, drains], () => [
    ...moves.map((m) => make("li", {}, m.from ? ["from ", explainLink(`Node/${m.from}`, m.from, "from "), " "] : null,
      "to ", explainLink(`Node/${m.to}`, m.to, `from ${m.from} to `), `: ${amount(m)}`, since(m.since))),
    ...drains.map((d) => make("li", {}, explainLink(`Node/${d.node}`, d.node, "drain "), ` is draining: ${amount(d) || "nothing"} left`)),
  ]);
  $("under-way").hidden = moves.length + drains.length === 0;
}

function showNodes(nodes) {
  const most = nodes.reduce((m, n) => Math.max(m, n.planned), 1);
  replace("node-rows", nodes, () => nodes.length ? nodes.map((n) => {
    const fill = make("span", { class: "fill" });
    fill.style.inlineSize = `${100 * n.planned / most}%`;
    return make("tr", {},
      make("th", { scope: "row" }, explainLink(`Node/${n.node}`, n.node)),
      make("td", {}, nodeState(n), make("div", { class: "muted" }, probed(n.reachability))), make("td", {}, n.egressAssignable ? "yes" : "no"),
      make("td", {}, make("div", { class: "load" }, make("span", { class: "track", "aria-hidden": "true" }, fill),
        make("button", {
          type: "button", class: "link value", "data-key": `load ${n.node}`, "aria-label": `${n.planned} addresses: show the objects of ${n.node}`,
          click: () => filter({ node: n.node, feature: "", state: "", text: "" }),
        }, number(n.planned)))),
      make("td", { class: "number" }, number(n.held)), make("td", {}, room(n.room || [])), make("td", { class: "number" }, number(n.hosts)));
  }) : [make("tr", {}, make("td", { colspan: 7, class: "empty" }, "There are no nodes."))]);
  const names = nodes.map((n) => n.node), select = $("filter-node"), chosen = select.value;
  replace("filter-node", names, () => [make("option", { value: "" }, "all"), ...names.map((n) => make("option", {}, n))]);
  if (names.includes(chosen)) select.value = chosen;
}

function showObjects(o) {
  if (o.matched <= offset && offset > 0) { offset = 0; ask("objects", wanted()).then(showObjects, showFailure); return; }
  replace("object-rows", o.objects, () => o.objects.length ? o.objects.map((has) => make("tr", {},
    make("td", {}, mark(has.state)), make("th", { scope: "row" }, explainLink(has.object)),
    make("td", { class: "mono" }, (has.addresses || []).map((a) => make("div", {}, a.address || "by the node's routes"))),
    make("td", {}, (has.addresses || []).map((a) => make("div", {}, a.node || make("span", { class: "muted" }, "none"),
      a.next ? [make("span", { class: "arrow", "aria-hidden": "true" }, " → "), make("span", { class: "spoken" }, " moves to "), a.next] : null))),
    make("td", {}, (has.problems || []).slice(0, 3).map((p) => make("div", {}, p.message, since(p.since))))))
    : [make("tr", {}, make("td", { colspan: 5, class: "empty" }, "No object matches."))]);
  const range = o.matched ? `${number(o.offset + 1)}–${number(o.offset + o.objects.length)} of ${number(o.matched)}` : "none";
  replace("range", range, () => [range]);
  $("previous").disabled = o.offset === 0;
  $("next").disabled = o.offset + o.objects.length >= o.matched;
}

function showTimeline(t) {
  replace("entries", t.entries, () => t.entries.length ? t.entries.map((e, i) => make("li", { class: e.warning ? "warning" : null },
    make("time", { datetime: e.time, title: e.time }, clock(e.time)),
    make("div", { class: "what" }, explainLink(e.object, e.object, `${i} `), " ", make("span", { class: "tag" }, e.reason), make("div", {}, e.message || ""))))
    : [make("li", { class: "empty" }, "Nothing has happened that is still known.")]);
  $("more").hidden = t.total <= t.entries.length || entries >= 1000;
}

// explainLink returns a button that explains an object, or plain text if that is not possible.
function explainLink(object, words, prefix) {
  const [kind, ...rest] = object.split("/"), name = rest.join("/");
  const what = { EgressIP: "egressip", EgressService: "service", Node: "node", Pod: "pod" }[kind];
  if (!what || !name) return make("span", {}, words || object);
  return make("button", { type: "button", class: "link", "data-key": `${prefix || ""}explain ${object}`, click: () => explain(what, name, "") }, words || object);
}

async function explain(kind, name, to) {
  $("explain-kind").value = kind;
  $("explain-name").value = name;
  $("explain-to").value = to;
  kindChosen();
  const answer = $("explain-answer"), mine = ++question;
  try {
    const text = await ask(`explain/${kind}`, { name, to: kind === "pod" ? to : "", output: "text" });
    if (mine !== question) return; // superseded by a later question
    answer.replaceChildren(make("pre", { tabindex: "0", "aria-label": `Answer about ${name}` }, text.trimEnd().split("\n").map((line) => {
      const sign = line.trimStart()[0], kind = { "!": "bad", "*": "wins", "=": "row", "-": "row" }[sign];
      return make("span", { class: kind }, line + "\n");
    })));
  } catch (e) {
    if (mine !== question) return;
    answer.replaceChildren(make("p", { class: "banner bad", role: "alert" }, e.message));
  }
  $("explain").scrollIntoView({ block: "start" });
}

function kindChosen() {
  const kind = $("explain-kind").value;
  $("explain-name").placeholder = KINDS[kind];
  $("explain-to-field").hidden = kind !== "pod";
}

const wanted = () => ({
  text: $("filter-text").value.trim(), feature: $("filter-feature").value, state: $("filter-state").value, node: $("filter-node").value, offset, limit: PAGE,
});

function filter(f) {
  for (const [key, value] of Object.entries(f)) $(`filter-${key}`).value = value;
  offset = 0;
  refresh();
  $("objects").scrollIntoView({ block: "start" });
  $("filter-text").focus({ preventScroll: true });
}

// show shows one of the mutually exclusive parts, or none.
function show(part) {
  for (const id of ["content", "login"]) $(id).hidden = id !== part;
  $("sections").hidden = part !== "content";
}

function showFailure(e) {
  if (e.status === 401) {
    show("login");
    $("login-why").textContent = e.message;
    replace("verdict", "?", () => ["Not signed in"]);
    $("verdict").className = "verdict";
    banner("", "", "");
    if (document.activeElement === document.body) $("token").focus();
    return;
  }
  const title = { 0: "No answer", 403: "You have no rights to see this", 502: "The cluster cannot be read" }[e.status] || "Something went wrong";
  banner("bad", title, e.message);
  if (!asOf || e.status === 403) {
    show();
    replace("verdict", title, () => [title]);
    $("verdict").className = "verdict bad";
  }
}

// refresh requests everything that is shown.
async function refresh() {
  clearTimeout(timer);
  const mine = ++round;
  try {
    const answers = await Promise.all([ask("status", {}), ask("objects", wanted()), ask("timeline", { limit: entries })]);
    if (mine !== round) return; // superseded by a later request
    show("content");
    showStatus(answers[0]);
    showObjects(answers[1]);
    showTimeline(answers[2]);
    showAge();
  } catch (e) {
    if (mine !== round) return;
    showFailure(e);
  }
  if (!document.hidden) timer = setTimeout(refresh, INTERVAL);
}

function showAge() {
  $("age").textContent = asOf ? `as of ${clock(asOf)}, ${ago(asOf)} ago` : "";
}

// The token stays in this tab, and does not stay in the address.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  token = sessionStorage.getItem("token") || "";
}

let typing = 0;
for (const id of ["filter-text", "filter-feature", "filter-state", "filter-node"]) {
  $(id).addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => { offset = 0; refresh(); }, 250); });
}
$("filter").addEventListener("submit", (e) => { e.preventDefault(); refresh(); });
$("previous").addEventListener("click", () => { offset = Math.max(0, offset - PAGE); refresh(); });
$("next").addEventListener("click", () => { offset += PAGE; refresh(); });
$("more").addEventListener("click", () => { entries = Math.min(1000, entries + 200); refresh(); });
$("explain-kind").addEventListener("input", kindChosen);
$("explain-form").addEventListener("submit", (e) => { e.preventDefault(); explain($("explain-kind").value, $("explain-name").value.trim(), $("explain-to").value.trim()); });
$("login").addEventListener("submit", (e) => { e.preventDefault(); token = $("token").value.trim(); sessionStorage.setItem("token", token); $("token").value = ""; refresh(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
window.addEventListener("hashchange", () => { if (location.hash.startsWith("#token=")) { takeToken(); refresh(); } });
setInterval(showAge, 1000);
takeToken();
kindChosen();
refresh();
