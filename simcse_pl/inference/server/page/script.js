// Search when typing pauses. The address contains the query and its options, so that a search can be bookmarked.

const PAUSE = 200; // milliseconds without a key press
const SLOW = 400; // milliseconds until the page says that it searches
const FIELDS = { q: "query", top_k: "top_k", threshold: "threshold" }; // from names in the address to ids

const element = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");

let limits;
let columns; // the section of each encoder
let pause;
let running = new AbortController();

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("No answer: is the server still running?");
  }
  if (!response.ok) throw new Error(`The search failed (status ${response.status}): see the server's terminal.`);
  return response.json();
}

function showStatus(status, error = "") {
  element("status").textContent = status;
  element("error").textContent = error;
}

function column({ encoder, sentences, ...about }) {
  const section = element("column").content.firstElementChild.cloneNode(true);
  section.querySelector("h2").textContent = encoder;
  const description = [`${number(sentences)} sentences`, about.architecture, about.pooling && `pooling ${about.pooling}`];
  description.push(about.layers && `${about.layers} layers`, `${about.dimensions} dimensions`);
  section.querySelector(".about").textContent = description.filter(Boolean).join(" · ");
  return section;
}

function result({ sentence, similarity }, rankInOther) {
  const item = element("result").content.firstElementChild.cloneNode(true);
  const link = item.querySelector("a");
  link.textContent = sentence; // as text: sentences may contain markup
  link.href = address({ ...fields(), q: sentence });
  item.querySelector(".similarity").textContent = similarity.toFixed(3);
  item.querySelector(".bar > span").style.width = `${100 * Math.max(0, similarity)}%`;
  if (rankInOther) {
    const other = item.querySelector(".other");
    other.hidden = false;
    other.textContent = `no. ${rankInOther} of the other encoder`;
    item.classList.add("shared");
  }
  return item;
}

function show(answers) {
  const ranks = answers.map((found) => new Map(found.map(({ sentence }, rank) => [sentence, rank + 1])));
  answers.forEach((found, own) => {
    const other = ranks[1 - own];
    const items = found.map((one) => result(one, other?.get(one.sentence)));
    columns[own].querySelector("ol").replaceChildren(...items);
    columns[own].querySelector(".none").hidden = found.length > 0;
  });
}

function clear() {
  for (const section of columns) {
    section.querySelector("ol").replaceChildren();
    section.querySelector(".none").hidden = true;
  }
}

function fields() {
  return Object.fromEntries(Object.entries(FIELDS).map(([name, id]) => [name, element(id).value.trim()]));
}

function address(values) {
  const given = Object.entries(values).filter(([name, value]) => value && value !== element(FIELDS[name]).defaultValue);
  return given.length ? `?${new URLSearchParams(given)}` : location.pathname;
}

function problem({ q }) {
  const characters = [...q].length;
  if (characters > limits.characters) {
    return `This sentence has ${number(characters)} characters: the limit is ${number(limits.characters)}.`;
  }
  const odd = ["top_k", "threshold"].map(element).find((input) => !input.validity.valid);
  return odd && `${odd.labels[0].innerText.trim()}: ${odd.validationMessage}`;
}

async function search() {
  clearTimeout(pause);
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const values = fields();
  history.replaceState(null, "", address(values));
  document.title = values.q ? `${values.q} – nearest sentences` : "Nearest sentences";
  const odd = problem(values);
  if (odd || !values.q) {
    clear();
    return showStatus(odd ? "" : "Type a sentence, or any text.", odd);
  }
  const slow = setTimeout(() => showStatus("Searching …"), SLOW);
  document.body.ariaBusy = "true";
  try {
    const started = performance.now();
    const { encoders } = await request("search", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        queries: [values.q],
        top_k: Number(values.top_k),
        threshold: values.threshold === "" ? null : Number(values.threshold),
      }),
      signal,
    });
    show(encoders.map(({ results }) => results[0]));
    clearTimeout(slow);
    showStatus(`Found in ${number(Math.round(performance.now() - started))} ms.`);
  } catch (error) {
    if (signal.aborted) return; // a later search has started
    clear();
    showStatus("", error.message);
  } finally {
    clearTimeout(slow);
    if (!signal.aborted) document.body.ariaBusy = "false";
  }
}

/** Highlight a sentence in both columns while the pointer or the focus is on it. */
function mark({ target }) {
  const sentence = target.closest("li")?.querySelector("a").textContent;
  for (const item of document.querySelectorAll("li")) {
    item.classList.toggle("marked", item.querySelector("a").textContent === sentence);
  }
}

async function start() {
  const given = new URLSearchParams(location.search);
  for (const [name, id] of Object.entries(FIELDS)) {
    if (given.has(name)) element(id).value = given.get(name);
  }
  try {
    const answer = await request("encoders");
    limits = answer.limits;
    columns = answer.encoders.map(column);
  } catch (error) {
    return showStatus("", error.message);
  }
  element("top_k").max = limits.top_k;
  document.querySelector("main").replaceChildren(...columns);
  document.querySelector("form").addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(search, PAUSE);
  });
  document.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  for (const event of ["pointerover", "focusin"]) document.addEventListener(event, mark);
  search();
}

start();
