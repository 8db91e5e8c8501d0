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
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "autoScale2d"]],
};
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

// ---- curves ----

/** An exponential moving average that begins at the first value; where there is no number it goes on after it. */
function smoothed(values, weight) {
  let sum = 0;
  let mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + 1 - weight;
    return sum / mass;
  });
}

/** Which points to draw: those in the range and one beyond each end, at most so many. */
function points(steps, values, most) {
  let [first, last] = [0, steps.length - 1];
  if (chosen.range) {
    while (first < last && steps[first + 1] < chosen.range[0]) first++;
    while (last > first && steps[last - 1] > chosen.range[1]) last--;
  }
  const count = last - first + 1;
  if (count <= most) return Array.from({ length: count }, (_, i) => first + i);
  const stretches = Math.max(1, Math.floor(most / 2));
  const kept = new Set([first, last]);
  for (let stretch = 0; stretch < stretches; stretch++) {
    const [from, to] = [stretch, stretch + 1].map((k) => first + Math.floor((k * count) / stretches));
    let [lowest, highest] = [from, from];
    for (let i = from; i < to; i++) {
      if (values[i] === null) kept.add(i);
      else {
        if (values[lowest] === null || values[i] < values[lowest]) lowest = i;
        if (values[highest] === null || values[i] > values[highest]) highest = i;
      }
    }
    kept.add(lowest).add(highest);
  }
  return [...kept].sort((a, b) => a - b);
}

function curveTraces(chart, palette) {
  const own = shown().filter((place) => runs[place].curves[chart.dataset.group]?.metrics[chart.dataset.metric]);
  const smooth = "noisy" in chart.dataset && chosen.smoothing > 0;
  const traces = [];
  for (const place of own) {
    const curves = runs[place].curves[chart.dataset.group];
    const measured = curves.metrics[chart.dataset.metric];
    const layers = smooth ? [[measured, 0.18], [smoothed(measured, chosen.smoothing), 1]] : [[measured, 1]];
    for (const [values, opacity] of layers) {
      const kept = points(curves.steps, values, MOST_POINTS / own.length);
      traces.push({
        type: "scatter",
        mode: kept.length > 1 && kept.length * own.length > MOST_MARKERS ? "lines" : "lines+markers",
        x: kept.map((i) => curves.steps[i]),
        y: kept.map((i) => values[i]),
        opacity,
        line: { color: palette[place], width: 1.4, dash: dash(place) },
        marker: { size: 4 },
        meta: [place, about(runs[place])],
        hoverinfo: opacity < 1 ? "skip" : undefined,
        hovertemplate: "%{meta[1]}<br>step %{x:d}<br><b>%{y:.5g}</b><extra></extra>",
      });
    }
  }
  return traces;
}

const layout = (more) => ({
  font: FONT,
  showlegend: false,
  hovermode: "closest",
  dragmode: DRAG,
  uirevision: "kept", // the button that is pressed
  hoverlabel: { bgcolor: "#fff", bordercolor: LINE, font: { ...FONT, size: 12 }, align: "left" },
  modebar: { bgcolor: "rgba(255,255,255,0.8)", color: NO_COLOUR, activecolor: INK },
  ...more,
});

function drawCurves(palette) {
  for (const chart of document.querySelectorAll(".curves")) {
    const fresh = !chart.data;
    const range = chosen.range ? { range: [...chosen.range], autorange: false } : { autorange: true };
    Plotly.react(
      chart,
      curveTraces(chart, palette),
      layout({
        margin: { l: 52, r: 12, t: 34, b: 30 },
        xaxis: { ...range, gridcolor: LINE, zeroline: false, uirevision: String(chosen.range) + chosen.zooms },
        yaxis: { autorange: true, gridcolor: LINE, zeroline: false, nticks: 6, uirevision: chosen.zooms },
      }),
      CONFIG,
    );
    if (fresh) chart.on("plotly_relayout", follow);
  }
}

/** What is zoomed in one chart is zoomed in all. */
function follow(change) {
  const range = change["xaxis.range"] ?? ("xaxis.range[0]" in change ? [change["xaxis.range[0]"], change["xaxis.range[1]"]] : null);
  if (range === null && !change["xaxis.autorange"]) return;
  chosen.range = range && [...range];
  draw();
}

function drawPath(palette) {
  const traces = [];
  for (const place of shown()) {
    const curves = runs[place].curves.val;
    const [alignment, uniformity] = ["val/alignment", "val/uniformity"].map((name) => curves?.metrics[name]);
    const kept = (curves?.steps ?? []).flatMap((_, i) => (alignment?.[i] != null && uniformity?.[i] != null ? [i] : []));
    if (!kept.length) continue;
    const last = kept.length - 1;
    const dev = (i) => curves.metrics["val/spearman"]?.[i];
    traces.push({
      type: "scatter",
      mode: "lines+markers",
      x: kept.map((i) => uniformity[i]),
      y: kept.map((i) => alignment[i]),
      line: { color: palette[place], width: 1.4, dash: dash(place) },
      marker: {
        size: kept.map((_, k) => (k === 0 || k === last ? 11 : 5)),
        color: kept.map((_, k) => (k === 0 ? "#fff" : palette[place])),
        line: { color: palette[place], width: kept.map((_, k) => (k === 0 ? 2 : 0)) },
        opacity: 1,
      },
      meta: [place, about(runs[place])],
      text: kept.map((i) => `step ${curves.steps[i]}` + (dev(i) == null ? "" : `<br>dev <b>${(100 * dev(i)).toFixed(2)}</b>`)),
      hovertemplate: "%{meta[1]}<br>%{text}<br>uniformity %{x:.3f}<br>alignment %{y:.3f}<extra></extra>",
    });
  }
  const path = document.getElementById("path");
  const axis = (title) => ({ title: { text: title }, gridcolor: LINE, zeroline: false, automargin: true, uirevision: "own" });
  Plotly.react(path, traces, layout({ margin: { l: 60, r: 20, t: 34, b: 50 }, xaxis: axis("uniformity"), yaxis: axis("alignment") }), CONFIG);
}

// ---- parallel coordinates ----

function drawParallel(palette) {
  for (const chart of document.querySelectorAll(".parallel")) {
    const sweep = Number(chart.dataset.sweep);
    const { jobs, axes } = page.parallel[sweep];
    const place = new Map(runs.map((run, i) => [run.label, i]));
    const lines = jobs.flatMap((job, i) => (chosen.checked.has(place.get(job)) ? [i] : []));
    const before = new Map((chart.data?.[0].dimensions ?? []).map((own) => [own.name, own]));
    const order = before.size ? [...before.keys()] : axes.map((axis) => axis.label);
    const fresh = !chart.data;
    if (fresh) chart.style.minWidth = `${7 * axes.length}rem`; // it scrolls where a screen is narrower
    const colour = lines.map((i) => palette[place.get(jobs[i])]);
    const trace = {
      type: "parcoords",
      dimensions: order.map((name) => {
        const axis = axes.find((own) => own.label === name);
        const [low, high] = [Math.min(...axis.values), Math.max(...axis.values)];
        return {
          name,
          label: plain(name),
          values: lines.map((i) => axis.values[i]),
          range: high > low ? [low, high] : [low - 1, low + 1],
          ...(axis.ticks.length ? { tickvals: axis.ticks, ticktext: axis.names } : {}),
          ...(before.get(name)?.constraintrange ? { constraintrange: before.get(name).constraintrange } : {}),
        };
      }),
      line: {
        color: lines.map((_, k) => k),
        cmin: 0,
        cmax: Math.max(1, lines.length - 1),
        // a colour a line, those of the other charts
        colorscale: lines.length > 1 ? colour.map((own, k) => [k / (lines.length - 1), own]) : [[0, colour[0] ?? INK], [1, colour[0] ?? INK]],
      },
      labelfont: { ...FONT, size: 12 },
      tickfont: FONT,
      rangefont: { ...FONT, color: "rgba(0,0,0,0)" },
      unselected: { line: { color: "#b8c0c8", opacity: 0.25 } },
    };
    Plotly.react(chart, [trace], layout({ margin: { l: 90, r: 60, t: 50, b: 24 } }), { ...CONFIG, displayModeBar: false });
    if (fresh) chart.on("plotly_restyle", () => brush(chart, sweep));
  }
}

/** Show of a sweep the runs alone that lie in the ranges that are marked on its axes. */
function brush(chart, sweep) {
  const { jobs, axes } = page.parallel[sweep];
  const marked = chart.data[0].dimensions.filter((own) => own.constraintrange?.length);
  const inside = (value, ranges) => (Array.isArray(ranges[0]) ? ranges : [ranges]).some(([low, high]) => low <= value && value <= high);
  const left = jobs.filter((_, i) =>
    marked.every((own) => inside(axes.find((axis) => axis.label === own.name).values[i], own.constraintrange)),
  );
  const own = [...runs.keys()].filter((i) => runs[i].sweep === sweep && left.includes(runs[i].label));
  if (marked.length) chosen.brushed.set(sweep, new Set(own));
  else chosen.brushed.delete(sweep);
  draw();
}

// ---- the table of runs and the tools ----

function drawRows(palette) {
  for (const row of document.querySelectorAll("#runs tbody tr")) {
    const place = Number(row.dataset.run);
    row.querySelector("input").checked = chosen.checked.has(place);
    row.querySelector(".swatch").style.background = palette[place];
    row.classList.toggle("hidden", !isShown(place));
  }
  const count = shown().length;
  document.getElementById("count").textContent = `${count} of ${runs.length} ${runs.length > 1 ? "runs" : "run"} shown`;
  document.getElementById("whole").disabled = chosen.range === null;
}

let waiting = false;

/** Draw everything once before the browser's next frame, however often it is asked to. */
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    const palette = colours();
    drawRows(palette);
    drawParallel(palette);
    drawCurves(palette);
    drawPath(palette);
  });
}

const byText = new Intl.Collator("en", { numeric: true });

/** Sort a table by a column: numbers by their value, before words; what is not there comes last. */
function sort(header) {
  const table = header.closest("table");
  const column = [...header.parentElement.children].indexOf(header);
  const numeric = header.classList.contains("number");
  const was = header.getAttribute("aria-sort");
  const descending = was ? was === "ascending" : numeric;
  for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const key = (row) => row.children[column].textContent.trim().replace(/^\* /, "");
  const number = (text) => parseFloat(numeric ? text : isFinite(text) ? text : NaN);
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, text: key(row), number: number(key(row)) }));
  const sign = descending ? -1 : 1;
  rows.sort((a, b) => {
    if (isNaN(a.number) || isNaN(b.number)) {
      return isNaN(a.number) - isNaN(b.number) || sign * byText.compare(a.text, b.text);
    }
    return sign * (a.number - b.number);
  });
  table.tBodies[0].append(...rows.map((own) => own.row));
}

function listen() {
  const element = (id) => document.getElementById(id);
  for (const header of document.querySelectorAll("th")) header.addEventListener("click", () => sort(header));
  for (const row of document.querySelectorAll("#runs tbody tr")) {
    const place = Number(row.dataset.run);
    row.querySelector("input").addEventListener("change", (event) => {
      chosen.checked[event.target.checked ? "add" : "delete"](place);
      draw();
    });
    row.querySelector(".only").addEventListener("click", () => {
      chosen.checked = new Set([place]);
      draw();
    });
  }
  element("all").addEventListener("click", () => {
    chosen.checked = new Set(runs.keys());
    draw();
  });
  element("none").addEventListener("click", () => {
    chosen.checked.clear();
    draw();
  });
  element("whole").addEventListener("click", () => {
    chosen.range = null;
    chosen.zooms++;
    draw();
  });
  element("smoothing").value = chosen.smoothing;
  const weight = () => (element("smoothing").nextElementSibling.textContent = chosen.smoothing.toFixed(2));
  weight();
  element("smoothing").addEventListener("input", (event) => {
    chosen.smoothing = Number(event.target.value);
    weight();
    draw();
  });
  const choices = [["run", "run"], ["dev", "score on dev"], ...page.options.map((name) => [`=${name}`, name])];
  element("colour").append(...choices.map(([value, name]) => new Option(name, value, false, value === chosen.colour)));
  element("colour").addEventListener("change", (event) => {
    chosen.colour = event.target.value;
    draw();
  });
}

listen();
draw();
