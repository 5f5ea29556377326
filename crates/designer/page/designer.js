"use strict";
// The profile designer: fields in, answers drawn. `ask(name, question)` answers: a server, or the same
// code compiled to WebAssembly. No figure is made here.

const designer = {
  ask: null,
  catalogue: null,
  answer: null,
  /** Answers may overtake each other: only the last question counts. */
  asked: 0,
  timer: null,
  chosen: () => [],
};

const RANGES_MAX = 4;
const byId = (id) => document.getElementById(id);

/** Begins, once questions can be asked. */
async function startDesigner(ask) {
  designer.ask = ask;
  designer.catalogue = await ask("catalogue");
  const { schema, profiles, tools } = designer.catalogue;
  for (const profile of profiles) byId("builtin").append(element("option", { value: profile.name }, profile.name));
  byId("builtin").append(element("option", { value: "", hidden: true }, "own"));
  for (const tool of tools) byId("tool").append(element("option", { value: tool }, `Command for ${tool}`));
  for (const [name, of] of Object.entries(schema.properties)) {
    if (name !== "timeout_range" && name !== "range_num") byId("header").append(field(name, name, of));
  }
  byId("builtin").addEventListener("change", takeBuiltIn);
  byId("fields").addEventListener("submit", (event) => event.preventDefault());
  byId("fields").addEventListener("input", (event) => edited(event.target));
  byId("add-range").addEventListener("click", addRange);
  byId("read").addEventListener("click", importPasted);
  byId("tool").addEventListener("change", showExport);
  byId("card").addEventListener("input", () => soon());
  byId("copy").addEventListener("click", copyExport);
  new ResizeObserver(drawAnswer).observe(byId("ladder"));
  byId("builtin").value = profiles.find(({ name }) => name === "link-flap")?.name ?? profiles[0].name;
  await takeBuiltIn();
}

// The fields.

/** A field of the profile, by its JSON Schema. `path` is what findings call it. */
function field(path, name, of) {
  const id = `field-${path}`;
  const described = { id, "data-path": path, "data-name": name, "aria-describedby": `${id}-hint ${id}-worth ${id}-error` };
  const input = of.enum
    ? element("select", described, ...of.enum.map((value) => element("option", { value: String(value) }, String(value))))
    : of.type === "boolean"
      ? element("input", { ...described, type: "checkbox" })
      : element("input", { ...described, type: "number", min: of.minimum, max: of.maximum, step: 1 });
  if (of.enum) input.dataset.numeric = String(typeof of.enum[0] === "number");
  const label = element("label", { for: id }, name);
  const hint = element("p", { id: `${id}-hint`, class: "hint" }, of.description);
  const worth = element("p", { id: `${id}-worth`, class: "hint worth" });
  const error = element("p", { id: `${id}-error`, class: "error" });
  const isBox = of.type === "boolean";
  const parts = isBox ? [input, label] : [label, input];
  return element("div", { class: isBox ? "field check" : "field" }, ...parts, worth, hint, error);
}

function addRange() {
  const index = byId("ranges").children.length;
  if (index >= RANGES_MAX) return;
  appendRange();
  const before = index > 0 ? rangeValues(index - 1) : {};
  const low = Number(before.range_low_bound ?? 8) + Number(before.range_size ?? 0) + 1;
  fillRange(index, { range_low_bound: low, range_size: 2, timeout_retry_num: 1, dec_mode: "TO_LOW_BOUND", prev_range_index: Math.max(0, index - 1) });
  byId(`field-timeout_range[${index}].range_low_bound`).focus();
  edited(byId("ranges"));
}

function appendRange() {
  const index = byId("ranges").children.length;
  const remove = element("button", { type: "button" }, "Remove this range");
  remove.addEventListener("click", () => removeRange(index));
  const of = designer.catalogue.schema.properties.timeout_range.items.properties;
  const fields = Object.entries(of).map(([name, each]) => field(`timeout_range[${index}].${name}`, name, each));
  byId("ranges").append(element("fieldset", {}, element("legend", {}, `Range ${index}`), ...fields,
    element("div", { class: "row" }, remove)));
  countRanges();
}

function removeRange(index) {
  const kept = profileValues().timeout_range.filter((_, at) => at !== index);
  setRanges(kept);
  byId("add-range").focus();
  edited(byId("ranges"));
}

function setRanges(values) {
  byId("ranges").replaceChildren();
  values.slice(0, RANGES_MAX).forEach((value, index) => {
    appendRange();
    fillRange(index, value);
  });
  countRanges();
}

function countRanges() {
  byId("add-range").disabled = byId("ranges").children.length >= RANGES_MAX;
}

function fillRange(index, values) {
  for (const [name, value] of Object.entries(values)) fill(byId(`field-timeout_range[${index}].${name}`), value);
}

function fillFields(profile) {
  for (const [name, value] of Object.entries(profile)) {
    if (name === "timeout_range") setRanges(value);
    else fill(byId(`field-${name}`), value);
  }
}

function fill(input, value) {
  if (!input) return;
  if (input.type === "checkbox") input.checked = value;
  else if (input.tagName === "SELECT" && ![...input.options].some((option) => option.value === String(value))) {
    // What is refused is shown all the same.
    input.append(element("option", { value: String(value) }, String(value)));
    input.value = String(value);
  } else input.value = String(value);
}

/** What an input holds; what is no number goes out as it is, and is refused by name. */
function valueOf(input) {
  if (input.type === "checkbox") return input.checked;
  if (input.validity.badInput) return "not a number";
  if (input.value === "") return null;
  const isNumber = input.type === "number" || input.dataset.numeric === "true" || /^\d+$/.test(input.value);
  return isNumber ? Number(input.value) : input.value;
}

function valuesIn(place) {
  const inputs = [...place.querySelectorAll("[data-name]")];
  return Object.fromEntries(inputs.map((input) => [input.dataset.name, valueOf(input)]));
}

const rangeValues = (index) => valuesIn(byId("ranges").children[index]);

function profileValues() {
  const ranges = [...byId("ranges").children].map(valuesIn);
  return { ...valuesIn(byId("header")), timeout_range: ranges };
}

// Questions.

function edited(target) {
  if (["paste", "builtin"].includes(target.id)) return;
  if (!["timeout", "retry_cnt", "floor"].includes(target.id)) ownProfile();
  soon();
}

function ownProfile() {
  byId("builtin").value = "";
  byId("about").textContent = "A profile of your own.";
}

function soon() {
  clearTimeout(designer.timer);
  designer.timer = setTimeout(() => question({ profile: profileValues() }), 60);
}

async function question(what) {
  // What was about to be asked is out of date.
  clearTimeout(designer.timer);
  const number = (designer.asked += 1);
  const options = {
    timeout: valueOf(byId("timeout")),
    retry_cnt: valueOf(byId("retry_cnt")),
    min_ack_timeout_limit_disabled: byId("floor").checked,
    device: byId("card").value,
  };
  try {
    const answer = await designer.ask("design", { ...what, ...options });
    if (number !== designer.asked) return null;
    showAnswer(answer);
    return answer;
  } catch (error) {
    if (number === designer.asked) showRefusal(error);
    return null;
  }
}

async function takeBuiltIn() {
  const chosen = designer.catalogue.profiles.find(({ name }) => name === byId("builtin").value);
  if (!chosen) return;
  byId("about").textContent = chosen.about;
  const answer = await question({ text: chosen.text });
  if (answer) {
    fillFields(answer.profile);
    showAnswer(answer);
  }
}

async function importPasted() {
  const said = byId("imported");
  const text = byId("paste").value;
  const answer = await question({ text });
  if (!answer) {
    said.replaceChildren(element("p", { class: "error" }, byId("verdict").textContent));
    return;
  }
  if (answer.profile === null) {
    const problems = answer.problems.map(({ line, text: why }) => element("p", { class: "error" }, line ? `line ${line}: ${why}` : why));
    said.replaceChildren(...problems);
    // What the fields say still stands.
    soon();
    return;
  }
  ownProfile();
  fillFields(answer.profile);
  showAnswer(answer);
  const remarks = answer.remarks.map((remark) => element("p", { class: "warn" }, remark));
  said.replaceChildren(element("p", {}, `Read as ${answer.form}.`), ...remarks);
}

// Answers.

function showRefusal(error) {
  designer.answer = null;
  byId("verdict").className = "bad";
  byId("verdict").textContent = error.message;
  markFields([{ field: error.field ?? "", text: error.message }]);
}

function showAnswer(answer) {
  designer.answer = answer;
  const kinds = { error: "Invalid", deadly: "Deadly", warning: "Warning", note: "Note" };
  const problems = answer.problems.map(({ text }) => ({ kind: "error", field: fieldIn(text), text }));
  const findings = [...problems, ...answer.findings];
  showVerdict(answer, findings);
  byId("findings").replaceChildren(...findings.map(({ kind, field: path, text }) => {
    const item = element("li", { class: kind === "error" ? "error-kind" : kind }, `${kinds[kind]}: `);
    const input = byId(`field-${path}`);
    if (input && text.startsWith(path)) {
      const to = element("button", { type: "button" }, path);
      to.addEventListener("click", () => input.focus());
      item.append(to, text.slice(path.length));
    } else item.append(text);
    return item;
  }));
  markFields(findings.filter(({ kind }) => kind === "error"));
  showWorth(answer.durations);
  showFigures(answer);
  showExport();
  drawAnswer();
  document.dispatchEvent(new CustomEvent("designed", { detail: answer }));
}

/** A problem of form begins with its key. */
const fieldIn = (text) => /^(unknown key )?([\w[\].]+)/.exec(text)?.[2] ?? "";

function showVerdict(answer, findings) {
  const verdict = byId("verdict");
  const warnings = findings.filter(({ kind }) => kind === "warning" || kind === "deadly").length;
  const [kind, text] = !answer.valid
    ? ["bad", "Invalid: a card would refuse this profile"]
    : answer.deadly
      ? ["bad", "Valid, but jobs would die of this profile"]
      : warnings > 0
        ? ["warn", `Valid, ${warnings} warning${warnings > 1 ? "s" : ""}`]
        : ["good", "Valid"];
  verdict.className = kind;
  if (verdict.textContent !== text) verdict.textContent = text;
}

function markFields(errors) {
  for (const input of byId("fields").querySelectorAll("input, select")) {
    const path = input.dataset.path ?? input.id;
    const place = byId(`${input.id}-error`);
    const own = errors.filter(({ field: wrong }) => wrong === path).map(({ text }) => text);
    if (own.length > 0) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    if (place) place.textContent = own.join(" ");
  }
}

function showWorth(durations) {
  for (const input of byId("fields").querySelectorAll("[data-path]")) {
    byId(`${input.id}-worth`).textContent = durations[input.dataset.path] ?? "";
  }
}

function showFigures({ policies }) {
  byId("figures").tBodies[0].replaceChildren(...policies.map(({ policy, words }) => element("tr", {},
    element("th", { scope: "row" }, policy),
    element("td", {}, words.survives),
    element("td", {}, words.resumes_within),
    element("td", {}, words.gives_up_after),
    element("td", {}, words.retransmissions))));
  const own = policies.find(({ policy }) => policy === "profile");
  byId("sentence").textContent = own ? `With this profile the queue pair ${own.sentence}.` : "";
  const names = policies.map(({ policy }) => policy);
  if (designer.names?.join() !== names.join()) {
    designer.names = names;
    designer.chosen = seriesBoxes(byId("series"), names, drawAnswer);
  }
}

function drawAnswer() {
  const { answer } = designer;
  if (!answer || byId("designer").hidden) return;
  const label = answer.policies.map(({ policy, sentence }) => `${policy}: ${sentence}.`).join(" ");
  drawLadders(byId("ladder"), answer.policies, designer.chosen(), `Ladder of waits. ${label}`);
}

// Export.

function showExport() {
  const { answer } = designer;
  const tool = byId("tool").value;
  const command = answer?.commands.find((it) => it.tool === tool);
  const text = tool === "toml" ? answer?.toml : command && (command.undo ? `${command.set}\n\n# to go back to the firmware's own timeouts:\n${command.undo}\n` : `${command.set}\n`);
  byId("exported").value = text ?? "";
  byId("exported").placeholder = "A profile that is invalid cannot be exported.";
  byId("for-device").hidden = tool === "toml";
  byId("copy").disabled = !text;
  const download = byId("download");
  download.download = tool === "toml" ? "profile.toml" : `profile-${tool}.sh`;
  if (text) download.href = `data:text/plain;charset=utf-8,${encodeURIComponent(text)}`;
  else download.removeAttribute("href");
}

async function copyExport() {
  const field = byId("exported");
  try {
    await navigator.clipboard.writeText(field.value);
    byId("copied").textContent = "Copied.";
  } catch {
    // The clipboard is for secure pages; what is selected can be copied by hand.
    field.focus();
    field.select();
    byId("copied").textContent = "Press Ctrl+C to copy.";
  }
}
