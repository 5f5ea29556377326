"use strict";
// Talks to the server: questions, changes, and a look at the devices every second while the page is
// seen.

const EVERY_MS = 1000;
const server = { about: null, token: null, timer: null, isGone: false, hasMissed: true };

/** Asks the server; `question` makes it a POST. What is refused is thrown with its field. */
async function fetched(path, question, headers = {}) {
  const options = question === undefined
    ? {}
    : { method: "POST", body: JSON.stringify(question), headers: { "content-type": "application/json", ...headers } };
  const response = await fetch(path, { ...options, signal: AbortSignal.timeout(5000) });
  const answer = await response.json();
  if (response.ok) return answer;
  throw Object.assign(new Error(answer.error.text), { field: answer.error.field, isRefusal: true });
}

const change = (what, question) => fetched(`/api/${what}`, question, { authorization: `Bearer ${server.token}` });

/** The link that the server printed has the token behind the #; it is taken out of the address. */
function takeToken() {
  const given = /^#token=([0-9a-f]+)$/.exec(location.hash);
  if (given) {
    sessionStorage.setItem("token", given[1]);
    history.replaceState(null, "", "#devices");
  }
  server.token = sessionStorage.getItem("token");
}

const mayChange = () => Boolean(server.about?.allow_changes && server.token);

function showView() {
  const view = location.hash === "#designer" ? "designer" : "devices";
  for (const name of ["devices", "designer"]) {
    byId(name).hidden = name !== view;
    const link = byId(`to-${name}`);
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = view === "designer" ? "Profile designer - Ferroce" : "Devices - Ferroce";
  drawAnswer();
  redrawDevices();
}

function showState(text, isGone) {
  server.isGone = isGone;
  byId("state").textContent = text;
  byId("state").classList.toggle("gone", isGone);
}

/** Looks at the devices, and again in a second; a page that is not seen does not ask. */
async function look() {
  clearTimeout(server.timer);
  if (document.hidden) {
    server.hasMissed = true;
    showState("paused", false);
    return;
  }
  try {
    const wasGone = server.isGone;
    if (server.about === null || wasGone) server.about = await fetched("/api/about");
    const past = server.hasMissed || wasGone ? await fetched("/api/history") : null;
    showDevices(await fetched("/api/devices"), past);
    server.hasMissed = false;
    showState("live", false);
  } catch (error) {
    if (error.isRefusal) showState(error.message, true);
    else showState("The server is gone. What you see is what it said last.", true);
  }
  server.timer = setTimeout(look, EVERY_MS);
}

async function start() {
  takeToken();
  showView();
  addEventListener("hashchange", () => {
    takeToken();
    showView();
  });
  document.addEventListener("visibilitychange", look);
  look();
  const askDesigner = (name, question) => fetched(`/api/${name}`, question);
  for (;;) {
    try {
      await startDesigner(askDesigner);
      return;
    } catch (error) {
      byId("verdict").textContent = error.message;
      await new Promise((resume) => setTimeout(resume, EVERY_MS));
    }
  }
}

start();
