"use strict";
// The devices as they are, and as they were in the last ten minutes.

const KEEP_MS = 600_000;
const devices = { cards: new Map(), last: null };

/**
 * A new look at all devices, and what was counted before if this page did not look. Cards stay where
 * they are, so that what is typed in them does too.
 */
function showDevices(look, past) {
  const names = look.devices.map(({ name }) => name);
  for (const [name, card] of devices.cards) {
    if (!names.includes(name)) {
      card.root.remove();
      devices.cards.delete(name);
    }
  }
  for (const device of look.devices) {
    if (!devices.cards.has(device.name)) {
      const card = deviceCard(device.name);
      devices.cards.set(device.name, card);
      byId("list").append(card.root);
    }
    const card = devices.cards.get(device.name);
    if (past?.devices[device.name]) recall(card, past.counters, past.devices[device.name]);
    remember(card, look.at_ms, device);
    card.device = device;
    if (!byId("devices").hidden) showDevice(card);
  }
  if (devices.last === null || devices.last !== names.join()) {
    devices.last = names.join();
    document.dispatchEvent(new CustomEvent("devices", { detail: names }));
  }
  showChanges();
}

function remember(card, at, device) {
  const last = card.history[card.history.length - 1];
  // A server that was started anew counts its time from the start; a look may be a little older than
  // what was last read.
  if (last && at < last.at - 1000) card.history = [];
  else if (last && at <= last.at) return;
  card.history.push({ at, counters: device.counters ?? {} });
  while (card.history[0].at < at - KEEP_MS) card.history.shift();
}

/** What the server has read while this page did not look. */
function recall(card, names, readings) {
  card.history = readings.map(([at, ...counts]) => ({
    at,
    counters: Object.fromEntries(names.map((name, index) => [name, counts[index]])),
  }));
}

function redrawDevices() {
  if (byId("devices").hidden) return;
  for (const card of devices.cards.values()) showDevice(card);
}

function showChanges() {
  const text = mayChange()
    ? "You opened this page with its token: changes take effect at once, for all programs on the device."
    : server.about?.allow_changes
      ? "To change devices, open the page with the link that the server printed when it started."
      : "Read only. Start the server with --allow-changes to change devices here.";
  if (byId("changes").textContent !== text) byId("changes").textContent = text;
}

/**
 * By how much counters have risen a second, of each two looks that follow each other; less those by
 * which others have.
 */
function rates(history, names, less = []) {
  const points = [];
  const now = history[history.length - 1]?.at ?? 0;
  const total = (look, of) => of.reduce((all, name) => all + (look.counters[name] ?? 0), 0);
  const sum = (look) => total(look, names) - total(look, less);
  const knows = (look) => names.every((name) => name in look.counters);
  for (let at = 1; at < history.length; at += 1) {
    const [before, after] = [history[at - 1], history[at]];
    // What the server keeps has the counters that are drawn only.
    if (!knows(before) || !knows(after)) continue;
    const seconds = (after.at - before.at) / 1000;
    points.push([(now - after.at) / 1000, Math.max(0, sum(after) - sum(before)) / seconds]);
  }
  return points;
}

byId("zeros").addEventListener("change", redrawDevices);
