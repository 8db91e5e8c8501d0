// The data, the reader's choices, and the look of all charts.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const runs = page.runs;

// Everything is drawn from these choices.
const chosen = {
  checked: new Set(runs.keys()),
  brushed: new Map(), // by sweep, the runs inside the ranges marked on its axes
  range: null, // of steps
  resets: 0, // how often the zoom was reset
  smoothing: runs.some((run) => (run.curves.train?.steps.length ?? 0) > 200) ? 0.6 : 0,
  colour: runs.length > page.colours.length && runs.some((run) => run.dev !== null) ? "dev" : "run",
};

const MAX_POINTS = 20000; // per chart; longer curves show the lowest and highest value of each stretch
const MAX_MARKERS = 300; // per chart; markers are slower to draw than lines
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const NO_COLOUR = "#9aa2ab";
const INK = "#1f2328";
const LINE = "#e4e8ec";
const CONFIG = {
  responsive: true,
  displaylogo: false,
  doubleClick: "autosize", // not "reset", which goes to the range of the last zoom
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "autoScale2d"]],
};
const LAST = Math.max(1, ...runs.flatMap((run) => Object.values(run.curves).map((curves) => curves.steps.at(-1))));
const WHOLE = [-0.02 * LAST, 1.02 * LAST]; // the range of steps, the same in all charts
const FONT = { family: getComputedStyle(document.body).fontFamily, size: 11, color: INK };
const DRAG = matchMedia("(pointer: coarse)").matches ? false : "zoom"; // a finger scrolls the page

// Plotly interprets some HTML tags in texts.
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

const shade = (fraction) => page.shades[Math.round(fraction * (page.shades.length - 1))];

/** Return the colour of each run: its own, or by its score on dev, or by the value of an option. */
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
