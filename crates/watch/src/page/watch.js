// The page of a DAFS server: fetches the state once a second, and shows the rates since the last one.
//
// It sends a new request each time instead of keeping one reply open. So a restarted server, a
// laptop that was asleep and a proxy in between need no special care, and no idle connection is
// kept.
"use strict";

const PAUSE_MS = 1000;
const PATIENCE_MS = 5000;
const POINTS = 120;

const history = {};
let before = null;
let answers = 0;

// ---- numbers ---------------------------------------------------------------------------

const count = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) { number /= 1024; unit += 1; }
  return `${short.format(number)} ${units[unit]}`;
}

function seconds(number) {
  if (number === null) return "–";
  if (number < 1e-3) return `${short.format(number * 1e6)} µs`;
  if (number < 1) return `${short.format(number * 1e3)} ms`;
  return `${short.format(number)} s`;
}

function span(number) {
  const days = Math.floor(number / 86400), hours = Math.floor(number / 3600) % 24;
  const minutes = Math.floor(number / 60) % 60;
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min`;
  return `${Math.floor(number)} s`;
}

// Returns the quantile of the latencies, from the counts of histogram buckets.
function quantile(part, buckets, bounds) {
  const all = buckets.reduce((sum, bucket) => sum + bucket, 0);
  if (all === 0) return null;
  let below = 0;
  for (let index = 0; index < buckets.length; index += 1) {
    if (below + buckets[index] >= part * all && buckets[index] > 0) {
      const upper = bounds[Math.min(index, bounds.length - 1)];
      const lower = index === 0 ? upper / 2 : bounds[index - 1];
      if (index >= bounds.length) return lower;
      return lower * Math.pow(upper / lower, (part * all - below) / buckets[index]);
    }
    below += buckets[index];
  }
  return null;
}

const sum = (rows, key) => rows.reduce((all, row) => all + row[key], 0);
const by = (rows, key) => new Map(rows.map((row) => [row[key], row]));

// Adds the procedures of NFS clients to those of DAFS. A compound counts for its main operation.
function joined(now) {
  const all = now.nfs.procedures.map((row) => ({
    procedure: `${row.program} ${row.procedure}`, bytes: row.bytes, buckets: row.buckets,
    requests: row.buckets.reduce((sum, bucket) => sum + bucket, 0),
    failures: row.failed > 0 ? { failed: row.failed } : {},
  }));
  now.procedures.push(...all.filter((row) => row.requests > 0));
  for (const row of now.nfs.clients) row.requests = row.calls;
  return now;
}

// Returns the rates per second between two replies.
function between(old, now) {
  const time = Math.max(now.uptime_seconds - old.uptime_seconds, 0.001);
  const rate = (row, other, key) => Math.max(row[key] - (other ? other[key] : 0), 0) / time;
  const procedures = by(old.procedures, "procedure"), sessions = by(old.sessions, "session");
  const transports = by(old.transports, "transport"), machines = by(old.nfs.clients, "address");
  const rates = { procedures: [], sessions: [], transports: [], machines: [] };
  for (const row of now.procedures) {
    const other = procedures.get(row.procedure);
    const buckets = row.buckets.map((bucket, at) => bucket - (other ? other.buckets[at] : 0));
    rates.procedures.push({
      requests: rate(row, other, "requests"), bytes: rate(row, other, "bytes"), buckets,
    });
  }
  for (const [all, table, old] of [["sessions", now.sessions, sessions],
    ["transports", now.transports, transports], ["machines", now.nfs.clients, machines]]) {
    for (const row of table) {
      const other = old.get(row.session || row.transport || row.address);
      rates[all].push({
        requests: rate(row, other, "requests"), read: rate(row, other, "read_bytes"),
        written: rate(row, other, "written_bytes"),
      });
    }
  }
  const hits = now.cache.hits - old.cache.hits, misses = now.cache.misses - old.cache.misses;
  rates.messages = rate(now.reactors, old.reactors, "messages");
  rates.hit_share = hits + misses > 0 ? hits / (hits + misses) : null;
  return rates;
}

// ---- display --------------------------------------------------------------------------

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function keep(name, value) {
  const line = history[name] || (history[name] = []);
  line.push(value === null ? 0 : value);
  if (line.length > POINTS) line.shift();
  return line;
}

function sparkline(lines, title) {
  const svg = drawn("svg", { viewBox: "0 0 120 40", preserveAspectRatio: "none", role: "img",
    "aria-label": title });
  const most = Math.max(...lines.flatMap(([, line]) => line), 1e-9);
  svg.append(drawn("line", { class: "axis", x1: 0, y1: 39.5, x2: 120, y2: 39.5 }));
  for (const [kind, line] of lines) {
    const from = POINTS - line.length;
    const points = line.map((value, at) => `${from + at},${(39 - 37 * value / most).toFixed(2)}`);
    svg.append(drawn("polyline", { class: kind, points: points.join(" ") }));
  }
  return svg;
}

function tile(id, title, value, note, lines) {
  let place = document.getElementById(id);
  if (!place) {
    place = element("div", { class: "tile", id });
    document.getElementById("tiles").append(place);
  }
  const shown = [element("h3", {}, title), element("div", { class: "value" }, value),
    element("div", { class: "note" }, ...note)];
  if (lines) shown.push(sparkline(lines, `${title}, the last two minutes`));
  place.replaceChildren(...shown);
}

function table(id, columns, rows, empty, whole) {
  const place = document.getElementById(id);
  const parts = [];
  if (rows.length === 0) parts.push(element("caption", {}, empty));
  else if (whole > rows.length) {
    parts.push(element("caption", {}, `${rows.length} of ${count.format(whole)}`));
  }
  if (rows.length > 0) {
    const kind = (is) => (is ? { class: "number" } : {});
    const head = columns.map(([name, is]) => element("th", { scope: "col", ...kind(is) }, name));
    const body = element("tbody", {});
    for (const { cells, style } of rows) {
      const row = element("tr", style ? { class: style } : {});
      cells.forEach((cell, at) => row.append(element("td", kind(columns[at][1]), cell)));
      body.append(row);
    }
    parts.push(element("thead", {}, element("tr", {}, ...head)), body);
  }
  place.replaceChildren(...parts);
}

function showTiles(now, rates) {
  const read = sum(rates.transports, "read"), written = sum(rates.transports, "written");
  const requests = sum(rates.transports, "requests");
  tile("throughput", "Throughput", `${bytes(read + written)}/s`, [
    element("span", { class: "key read" }, `read ${bytes(read)}/s`), " · ",
    element("span", { class: "key write" }, `written ${bytes(written)}/s`)],
  [["read", keep("read", read)], ["write", keep("written", written)]]);
  tile("requests", "Requests", `${count.format(requests)}/s`,
    [`${count.format(now.requests)} since the start`], [["one", keep("requests", requests)]]);
  const buckets = now.bucket_bounds_seconds.map(() => 0).concat(0);
  for (const row of rates.procedures) row.buckets.forEach((each, at) => { buckets[at] += each; });
  const bounds = now.bucket_bounds_seconds;
  const [half, most] = [0.5, 0.99].map((part) => quantile(part, buckets, bounds));
  tile("latency", "Latency in the server, p99", seconds(most), [`p50 ${seconds(half)}`],
    [["one", keep("latency", most)]]);
  const share = rates.hit_share;
  tile("cache", "Cache hits", share === null ? "–" : `${short.format(share * 100)} %`,
    [`${bytes(now.cache.used_bytes)} of ${bytes(now.cache.bytes)} used, ` +
      `${bytes(now.cache.dirty_bytes)} dirty`], [["one", keep("hits", share)]]);
  tile("session-count", "Sessions", count.format(now.counts.sessions),
    [`${count.format(now.counts.throttled)} throttled`], null);
  tile("credits", "Credits", count.format(now.credits.given),
    [`of ${count.format(now.credits.budget)}`], null);
  tile("lock-count", "Locks", count.format(now.counts.locks),
    [`${count.format(now.counts.waiters)} waiting`], null);
  tile("reactors", "Reactors", count.format(now.reactors.count),
    [`${count.format(rates.messages)} messages/s between them`], null);
  tile("regions", "Memory regions", count.format(now.regions.registered),
    [`${count.format(now.regions.lent)} ranges lent to transports`], null);
}

function showProcedures(now, rates) {
  const rows = now.procedures.map((row, at) => {
    const rate = rates.procedures[at];
    const lately = rate.buckets.some((bucket) => bucket > 0);
    const buckets = lately ? rate.buckets : row.buckets;
    const [half, most] =
      [0.5, 0.99].map((part) => quantile(part, buckets, now.bucket_bounds_seconds));
    const failed = Object.entries(row.failures).map(([name, number]) => `${name} ${number}`);
    return { rate: rate.requests, cells: [row.procedure, count.format(rate.requests),
      `${bytes(rate.bytes)}/s`, seconds(half), seconds(most), count.format(row.requests),
      failed.join(", ")] };
  });
  rows.sort((left, right) => right.rate - left.rate);
  table("procedures", [["procedure"], ["per second", true], ["bytes", true], ["p50", true],
    ["p99", true], ["total", true], ["failed"]], rows, "no requests yet", 0);
}

function showSessions(now, rates) {
  const rows = now.sessions.map((row, at) => {
    const rate = rates.sessions[at];
    const limit = row.throttled
      ? element("span", { class: "badge" }, `throttled: ${row.limited_by}`) : row.limited_by;
    return { style: row.throttled ? "throttled" : "", cells: [row.client, limit,
      count.format(rate.requests), `${bytes(rate.read)}/s`, `${bytes(rate.written)}/s`,
      `${row.credits} of ${row.credits_target}`, count.format(row.outstanding),
      count.format(row.opens), row.principal,
      row.transport + (row.address ? ` ${row.address}` : "")] };
  });
  table("sessions", [["client"], ["limited by"], ["requests/s", true], ["read", true],
    ["written", true], ["credits", true], ["in flight", true], ["opens", true], ["who"], ["by"]],
  rows, "no sessions", now.counts.sessions);
}

function showRest(now, rates) {
  table("transports", [["transport"], ["connections", true], ["requests/s", true],
    ["read", true], ["written", true]], now.transports.map((row, at) => {
    const rate = rates.transports[at];
    return { cells: [row.transport, count.format(row.connections), count.format(rate.requests),
      `${bytes(rate.read)}/s`, `${bytes(rate.written)}/s`] };
  }), "", 0);
  const carried = (row) => Object.entries(row.transports)
    .map(([name, number]) => `${count.format(number)} ${name}`).join(", ");
  table("nfs-clients", [["address"], ["connections", true], ["calls/s", true], ["read", true],
    ["written", true]], now.nfs.clients.map((row, at) => {
    const rate = rates.machines[at];
    return { cells: [row.address, carried(row), count.format(rate.requests),
      `${bytes(rate.read)}/s`, `${bytes(rate.written)}/s`] };
  }), "no NFS clients", now.counts.nfs_clients);
  const range = (row) =>
    `${row.offset}–${row.length === null ? "end" : row.offset + row.length - 1}`;
  const locks = now.locks.map((row) => ({ cells: [row.file || "?", row.mode, range(row),
    row.client, row.owner, row.condition] }));
  const waiters = now.waiters.map((row) => ({ cells: [row.file || "?", row.mode, range(row),
    `client ${row.client_id}`, row.owner,
    element("span", { class: "badge" }, `waits for client ${row.waits_for.join(", ")}`)] }));
  table("locks", [["file"], ["kind"], ["bytes"], ["client"], ["owner"], ["state"]],
    locks.concat(waiters), "no locks", now.counts.locks + now.counts.waiters);
  table("fences", [["object"], ["admits"], ["change"]], now.fences.map((row) => ({ cells: [
    row.file_system ? `file system ${row.handle}` : row.file || row.handle,
    row.let_in.join(", ") || "all sessions",
    row.waits_for === null ? "" : `waits for ${row.waits_for} operations`] })),
  "no fences", now.counts.fences);
}

function show(now) {
  // The counters of a restarted server start from zero.
  if (before && before.uptime_seconds > now.uptime_seconds) before = null;
  const rates = between(before || now, now);
  showTiles(now, rates);
  showProcedures(now, rates);
  showSessions(now, rates);
  showRest(now, rates);
  before = now;
}

// ---- fetching --------------------------------------------------------------------------

function say(state, text) {
  const place = document.getElementById("state");
  if (place.textContent !== text) place.textContent = text;
  place.dataset.state = state;
  document.getElementById("live").classList.toggle("stale", state === "away");
}

async function ask() {
  try {
    const options = { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) };
    const answer = await fetch("api/status", options);
    if (!answer.ok) throw new Error(`${answer.status}`);
    const now = joined(await answer.json());
    show(now);
    answers += 1;
    document.body.dataset.answers = answers;
    const grace = now.in_grace ? "; grace period: clients are reclaiming state" : "";
    say("live", `up ${span(now.uptime_seconds)}${grace}`);
  } catch (error) {
    say("away", "server unreachable, trying again");
  }
  setTimeout(ask, document.hidden ? 5 * PAUSE_MS : PAUSE_MS);
}

document.addEventListener("DOMContentLoaded", ask);
