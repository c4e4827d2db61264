// The server renders the page; this keeps it current. Each event says that
// there is a newer report: the page is fetched again and what differs is
// changed in place, so that focus, selection and scrolling stay.
"use strict";

const live = document.getElementById("live");
const liveText = document.getElementById("live-text");
const announce = document.getElementById("announce");
const interval = Number(document.documentElement.dataset.interval);
// Without an event for so long the connection is dead, whatever it says.
const silence = Math.max(15000, 5 * interval);

let source, state = "connecting", heard = Date.now(), shown = Date.now(), again;

function say(next) {
  if (next) state = next;
  const seconds = Math.round((Date.now() - shown) / 1000);
  const age = seconds < 2 ? "just now" : seconds < 120 ? `${seconds} s ago` : `${Math.round(seconds / 60)} min ago`;
  const text = state === "live" ? `Live, updated ${age}` : state === "lost" ? `Connection lost, trying again; last report ${age}` : "Connecting";
  if (live.dataset.state !== state) live.dataset.state = state;
  if (liveText.textContent !== text) liveText.textContent = text;
}

function connect() {
  clearTimeout(again);
  if (source) source.close();
  heard = Date.now();
  source = new EventSource("events?brief");
  source.onopen = () => { heard = Date.now(); say("live"); };
  source.onerror = () => {
    say("lost");
    // The browser comes back by itself, unless it was refused.
    if (source.readyState === EventSource.CLOSED) again = setTimeout(connect, 5000);
  };
  for (const kind of ["report", "stale"]) {
    source.addEventListener(kind, () => { heard = Date.now(); say("live"); refresh(); });
  }
}

let busy = false, missed = false;

async function refresh() {
  if (document.hidden || busy) { missed = true; return; }
  busy = true;
  missed = false;
  try {
    const answer = await fetch("./", { cache: "no-store" });
    if (answer.redirected && answer.url.endsWith("/sign-in")) { location.reload(); return; }
    if (!answer.ok) throw new Error(answer.statusText);
    show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    shown = Date.now();
    say("live");
  } catch {
    say("lost"); // the next event, or the next connection, tries again
  }
  busy = false;
  if (missed) refresh();
}

function show(page) {
  const main = document.getElementById("main");
  const before = findings(main);
  morph(main, page.getElementById("main"));
  if (document.title !== page.title) document.title = page.title;
  const after = findings(main);
  // Only what is new is read out: numbers in a finding change all the time.
  const news = [...after].filter(([key]) => !before.has(key)).map(([, text]) => text);
  if (news.length) announce.textContent = news.join(". ");
  else if (before.size && !after.size) announce.textContent = "All findings are gone.";
}

function findings(root) {
  return new Map([...root.querySelectorAll(".finding")].map((f) => [f.dataset.key, f.querySelector("p").textContent]));
}

// morph makes a node like another one. It keeps the nodes that have the same id,
// else the next of the same kind: a bar never becomes a line.
function morph(node, like) {
  for (const { name } of [...node.attributes]) if (!like.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of like.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  const keyed = new Map();
  for (const child of node.children) if (child.id) keyed.set(child.id, child);
  let at = node.firstChild;
  for (const want of [...like.childNodes]) {
    let have = want.id ? keyed.get(want.id) : at;
    if (!want.id) while (have && !alike(have, want)) have = have.nextSibling;
    if (!have) {
      node.insertBefore(document.importNode(want, true), at);
      continue;
    }
    if (have === at) at = at.nextSibling;
    else node.insertBefore(have, at);
    if (want.nodeType === Node.ELEMENT_NODE) morph(have, want);
    else if (have.nodeValue !== want.nodeValue && !telling.has(have)) have.nodeValue = want.nodeValue;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(a, b) {
  return !a.id && a.nodeName === b.nodeName && (a.nodeType !== Node.ELEMENT_NODE || a.classList[0] === b.classList[0]);
}

// telling has the words of buttons that say what became of a copy: an update
// in these two seconds leaves them alone.
const telling = new WeakSet();

if (navigator.clipboard) {
  document.documentElement.classList.add("can-copy");
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const word = button.firstChild;
    telling.add(word);
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      word.nodeValue = "Copied";
    } catch {
      word.nodeValue = "Select it";
    }
    setTimeout(() => { telling.delete(word); word.nodeValue = "Copy"; }, 2000);
  });
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && missed) refresh(); });
setInterval(() => {
  say();
  if (Date.now() - heard > silence) { say("lost"); connect(); }
}, 1000);
say();
connect();
