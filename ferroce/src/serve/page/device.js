"use strict";
// One device: what it is, what it counts, and what may be changed on it.

/** How far back lines may go. */
const PLOT_SECONDS = [120, 600];

const QP_COLUMNS = ["Queue pair", "Type", "State", "Peer", "timeout/retry_cnt", "In flight", "Rate", "CNPs", "Program"];
const ERROR_COLUMNS = ["Time", "Queue pair", "Peer", "Request", "Error", "vendor_err", "Flushed behind it"];

/** The parts of a device's card that change, in their place. */
function deviceCard(name) {
  const part = {};
  const id = (what) => `${what}-${name}`;
  part.port = element("span", { class: "badge" });
  part.facts = element("dl");
  part.problem = element("p", { class: "error" });
  part.traffic = element("div", { class: "plot" });
  part.timeouts = element("div", { class: "plot" });
  part.congestion = element("div", { class: "plot" });
  part.histogram = element("div", { class: "plot" });
  part.qps = table(QP_COLUMNS);
  part.qpsNote = element("p", { class: "hint" });
  part.errors = table(ERROR_COLUMNS);
  part.errorsNote = element("p", { class: "hint" });
  part.counters = table(["Counter", "Total", "Per second"], [1, 2]);
  part.countersNote = element("p", { class: "hint" });
  const lines = (names) => element("span", { class: "series" }, ...names.map((text, index) => element("label", {},
    drawn("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" }, drawn("line", { class: `s${index}`, x1: 0, x2: 28, y1: 5, y2: 5 })), text)));
  const plots = element("div", { class: "plots" },
    figure("Throughput", part.traffic, lines(["sent", "received"])),
    figure("Timeouts and retransmissions", part.timeouts, lines(["timeouts", "retransmissions"])),
    figure("CNPs and marked packets", part.congestion, lines(["handled", "sent", "marked"])),
    figure("Waits before adaptive retransmissions", part.histogram));
  const changes = deviceForm(name);
  const root = element("article", { class: "device", "aria-labelledby": id("name") },
    element("h2", { id: id("name") }, name, part.port), part.problem, part.facts, changes, plots,
    element("h3", {}, "Queue pairs"), wide(part.qps, `Queue pairs of ${name}`), part.qpsNote,
    element("h3", {}, "Recent errors"), wide(part.errors, `Recent errors of ${name}`), part.errorsNote,
    element("h3", {}, "Counters"), wide(part.counters, `Counters of ${name}`), part.countersNote);
  return { root, part, changes, history: [], device: null };
}

const figure = (title, plot, ...rest) => element("figure", {}, element("figcaption", {}, title, ...rest), plot);
const wide = (content, label) => element("div", { class: "wide", role: "region", "aria-label": label, tabindex: 0 }, content);

/** `numbers` are the indices of columns with numbers. */
function table(columns, numbers = []) {
  const head = columns.map((name, at) => element("th", { scope: "col", class: numbers.includes(at) ? "number" : null }, name));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody"));
}

function showDevice({ part, changes, device, history }) {
  if (!device) return;
  changes.hidden = !mayChange() || Boolean(device.error);
  part.problem.textContent = device.error ?? "";
  if (device.error) return;
  const { port, policy, impairment } = device;
  part.port.className = `badge ${port.is_up ? "good" : "bad"}`;
  part.port.textContent = port.is_up ? "ACTIVE" : "DOWN";
  const changing = port.changes_in_ns === null ? "" : `, ${port.is_up ? "down" : "up"} in ${spanText(port.changes_in_ns)}`;
  const programs = device.processes.map(({ pid, comm }) => `${comm} (${pid})`).join(", ");
  facts(part.facts, [
    ["Address", `${device.address}${device.netdev ? `, ${device.netdev}` : ""}${device.card ? `, a VF of ${device.card}` : ""}`],
    ["Port", `${countText(device.rate_bps)}bit/s; went down ${port.downed} times${changing}`],
    ["Retransmits by", policy.profile === null ? policy.by : policyWithProfile(policy)],
    ["Impairment", impaired(impairment), impairment.egress !== "none" || impairment.ingress !== "none"],
    ["Programs", programs || "none"],
  ]);
  const oldest = history.length > 0 ? (history[history.length - 1].at - history[0].at) / 1000 : 0;
  const seconds = PLOT_SECONDS.find((most) => oldest <= most) ?? PLOT_SECONDS[PLOT_SECONDS.length - 1];
  const bits = (points) => points.map(([ago, value]) => [ago, value * 8]);
  const sent = bits(rates(history, ["rdma_tx_bytes"]));
  const received = bits(rates(history, ["rdma_rx_bytes"]));
  drawLines(part.traffic, [sent, received], seconds, "bit/s", `Throughput of ${device.name}`);
  const timeouts = rates(history, ["timeouts_ib", "timeouts_firmware", "timeouts_profile"]);
  const repeated = rates(history, ["retransmitted_packets"]);
  drawLines(part.timeouts, [timeouts, repeated], seconds, "per second", `Timeouts of ${device.name}`);
  // Retransmissions after a timeout are among those handled.
  const handled = rates(history, ["rp_cnp_handled"], ["roce_slow_restart_cnps"]);
  const congestion = [handled, rates(history, ["np_cnp_sent"]), rates(history, ["np_ecn_marked_roce_packets"])];
  drawLines(part.congestion, congestion, seconds, "per second", `CNPs and marked packets of ${device.name}`);
  drawBars(part.histogram, device.histogram.bins, `Histogram of waits of ${device.name}`);
  showQps(part, device.qps);
  showErrors(part, device.errors);
  showCounters(part, device.counters, history);
}

function policyWithProfile({ by, profile }) {
  const open = element("a", { href: "#designer" }, "open in the designer");
  open.addEventListener("click", () => designText(profile));
  return element("span", {}, `${by} (`, open, ")");
}

/** Only what has changed is put in, so that what is selected or focused stays. */
function facts(list, rows) {
  const key = JSON.stringify(rows.map(([name, value]) => [name, value.textContent ?? value]));
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...rows.flatMap(([name, value, isWarning]) => [
    element("dt", {}, name), element("dd", { class: isWarning ? "warn" : null }, value)]));
}

function impaired({ egress, ingress }) {
  if (egress === "none" && ingress === "none") return "none";
  const parts = [];
  if (egress !== "none") parts.push(`sent: ${egress}`);
  if (ingress !== "none") parts.push(`received: ${ingress}`);
  return parts.join("; ");
}

function showQps(part, { count, silent, rows }) {
  part.qps.hidden = rows.length === 0;
  part.qps.tBodies[0].replaceChildren(...rows.map((qp) => record(QP_COLUMNS, [
    String(qp.lqpn),
    qp.type,
    qp.state,
    qp.peer ? `${qp.peer}${qp.rqpn === null ? "" : ` ${qp.rqpn}`}` : "",
    `${qp.timeout}/${qp.retry_cnt}`,
    String(qp.in_flight),
    qp.is_limited ? `${countText(qp.rate_bps)}bit/s, slowed by CNPs` : `${countText(qp.rate_bps)}bit/s`,
    String(qp.cnps),
    `${qp.comm} (${qp.pid})`,
  ], qp.is_limited)));
  const notes = [];
  if (count === 0 && silent === 0) notes.push("No queue pairs.");
  if (count > rows.length) notes.push(`${count - rows.length} more are not listed; \`ferroce res show qp\` lists all.`);
  if (silent > 0) notes.push(`${silent} program${silent > 1 ? "s" : ""} did not answer in time; stopped, or the machine is busy.`);
  part.qpsNote.textContent = notes.join(" ");
}

/** A row whose cells know their columns, so that a narrow window can show one below the other. */
function record(columns, cells, isWarning) {
  return element("tr", { class: isWarning ? "warn" : null }, ...cells.map((text, at) => at === 0
    ? element("th", { scope: "row", "data-column": columns[at] }, text)
    : element("td", { "data-column": columns[at] }, text)));
}

function showErrors(part, { count, rows }) {
  part.errors.hidden = rows.length === 0;
  part.errors.tBodies[0].replaceChildren(...rows.map((error) => record(ERROR_COLUMNS, [
    new Date(error.unix_ns / 1e6).toLocaleTimeString("en-GB"),
    String(error.qpn),
    error.peer === null ? "" : `${error.peer} ${error.peer_qpn}`,
    error.request,
    error.name,
    `0x${error.vendor_err.toString(16)}`,
    String(error.flushed),
  ])));
  const more = count > rows.length ? ` The latest ${rows.length} of ${count}.` : "";
  part.errorsNote.textContent = count === 0 ? "No errors." : `\`ferroce explain error\` explains them.${more}`;
}

function showCounters({ counters: place, countersNote }, counters, history) {
  const recent = history.slice(-2);
  const rows = Object.entries(counters).filter(([, count]) => count > 0 || byId("zeros").checked);
  place.hidden = rows.length === 0;
  countersNote.textContent = rows.length === 0 ? "All counters are zero." : "";
  place.tBodies[0].replaceChildren(...rows.map(([name, count]) => {
    const rate = rates(recent, [name])[0]?.[1] ?? 0;
    return element("tr", {},
      element("th", { scope: "row", title: server.about?.counters[name] }, name),
      element("td", { class: "number" }, count.toLocaleString("en")),
      element("td", { class: "number" }, rate > 0 ? countText(rate) : ""));
  }));
}

// Changes.

function deviceForm(name) {
  const said = element("p", { role: "status", class: "hint" });
  const make = async (what, question) => {
    said.className = "hint";
    said.textContent = "";
    try {
      await change(what, { device: name, ...question });
      said.textContent = "Done.";
      look();
    } catch (error) {
      said.className = "error";
      said.textContent = error.message;
    }
  };
  const button = (text, act) => {
    const made = element("button", { type: "button" }, text);
    made.addEventListener("click", act);
    return made;
  };
  const id = `impair-${name}`;
  const spec = element("input", { id, placeholder: "loss=1%,delay=50us", spellcheck: "false", size: 22 });
  const direction = element("select", { "aria-label": "Which packets" },
    element("option", { value: "egress" }, "sent"), element("option", { value: "ingress" }, "received"),
    element("option", { value: "both" }, "both"));
  const set = () => make("impairment", { direction: direction.value, impairment: spec.value });
  const form = element("form", { class: "row", autocomplete: "off", "aria-label": `Change ${name}` },
    button("Take the port down", () => make("link", { state: "down" })),
    button("Bring it up", () => make("link", { state: "up" })),
    element("label", { for: id }, "Impair"), direction, spec, element("button", {}, "Set"),
    button("Clear", () => make("impairment", { direction: "both", impairment: "" })), said);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    set();
  });
  form.hidden = true;
  return form;
}

/** In the designer: writes its profile into a device. */
function applyForm() {
  const to = element("select", { id: "apply-to" });
  const force = element("input", { type: "checkbox", id: "force" });
  const said = element("p", { role: "status", class: "hint" });
  const apply = element("button", { class: "main" }, "Apply");
  const form = element("form", { autocomplete: "off", "aria-label": "Apply to a device", hidden: true },
    element("h2", {}, "Apply to a device"),
    element("div", { class: "row" }, element("label", { for: "apply-to" }, "Device"), to, apply,
      element("label", {}, force, " even if jobs would die of it")), said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await change("profile", { device: to.value, text: designer.answer?.toml ?? "", force: force.checked });
      said.className = "hint";
      said.textContent = `${to.value} has this profile now.`;
    } catch (error) {
      said.className = "error";
      said.textContent = error.message;
    }
  });
  const show = () => { form.hidden = !mayChange(); };
  document.addEventListener("devices", ({ detail: names }) => {
    to.replaceChildren(...names.map((name) => element("option", {}, name)));
    show();
  });
  document.addEventListener("designed", ({ detail: answer }) => {
    apply.disabled = !answer.valid;
    said.textContent = "";
    show();
  });
  byId("apply-place").append(form);
}

/** Opens a profile of a device in the designer. */
function designText(text) {
  byId("paste").value = text;
  importPasted();
}

applyForm();
