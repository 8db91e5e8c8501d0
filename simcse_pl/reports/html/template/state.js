// What is shown, what the reader has chosen of it, and how it looks.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const runs = page.runs;

// What the reader has chosen; everything is drawn from it.
const chosen = {
  checked: new Set(runs.keys()),
  brushed: new Map(), // of a sweep, the runs that its coordinates leave
  range: null, // of steps
  zooms: 0, // counts the times that all zooming was undone
  smoothing: runs.some((run) => (run.curves.train?.steps.length ?? 0) > 200) ? 0.6 : 0,
  colour: runs.length > page.colours.length && runs.some((run) => run.dev !== null) ? "dev" : "run",
};

const MOST_POINTS = 20000; // of a chart; beyond, curves are thinned to the extremes of short stretches
const MOST_MARKERS = 300; // of a chart; they take the browser longer than lines
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const NO_COLOUR = "#9aa2ab";
const INK = "#1f2328";
const LINE = "#e4e8ec";
const CONFIG = {
  responsive: true,
  displaylogo: false,
  doubleClick: "autosize", // and not the range that was drawn first, which is that of the last zoom
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "autoScale2d"]],
};
const LAST = Math.max(1, ...runs.flatMap((run) => Object.values(run.curves).map((curves) => curves.steps.at(-1))));
const WHOLE = [-0.02 * LAST, 1.02 * LAST]; // of steps, in all charts, whatever runs are shown
const FONT = { family: getComputedStyle(document.body).fontFamily, size: 11, color: INK };
const DRAG = matchMedia("(pointer: coarse)").matches ? false : "zoom"; // a finger scrolls the page

// Plotly takes some tags in its texts as such.
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const about = (run) => {
  const options = Object.entries(run.options).map(([name, value]) => `${plain(name)}=${plain(value)}`);
  return [`<b>${plain(run.label)}</b>`, ...options].join("<br>");
};

const isShown = (place) => {
  const left = chosen.brushed.get(runs[place].sweep);
  return chosen.checked.has(place) && (!left || left.has(place));
};

const shown = () => [...runs.keys()].filter(isShown);

// ---- colours ----

const numbers = (values) => (values.every((value) => value.trim() !== "" && isFinite(value)) ? values.map(Number) : null);

function shade(share) {
  const at = share * (page.shades.length - 1);
  const low = Math.min(Math.floor(at), page.shades.length - 2);
  const part = (colour, i) => parseInt(colour.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mixed = [0, 1, 2].map((i) => part(page.shades[low], i) * (1 - at + low) + part(page.shades[low + 1], i) * (at - low));
  return `rgb(${mixed.map(Math.round).join(",")})`;
}

/** The colour of each run: its own, or by its score on dev, or by the value of an option. */
function colours() {
  if (chosen.colour === "run") return runs.map((_, place) => page.colours[place % page.colours.length]);
  if (chosen.colour === "dev") {
    const scores = runs.map((run) => run.dev).filter((score) => score !== null);
    const [low, high] = [Math.min(...scores), Math.max(...scores)];
    return runs.map((run) => (run.dev === null ? NO_COLOUR : shade(high > low ? (run.dev - low) / (high - low) : 0.5)));
  }
  const own = runs.map((run) => run.options[chosen.colour.slice(1)]);
  const values = [...new Set(own)];
  const sorted = numbers(values)?.sort((a, b) => a - b);
  return own.map((value) =>
    sorted ? shade(sorted.indexOf(Number(value)) / Math.max(1, sorted.length - 1)) : page.colours[values.indexOf(value) % page.colours.length],
  );
}

const dash = (place) => (chosen.colour === "run" ? DASHES[Math.floor(place / page.colours.length) % DASHES.length] : "solid");
