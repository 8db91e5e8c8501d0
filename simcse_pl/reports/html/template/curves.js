// Curves by step, and the path through alignment and uniformity.

/** Return an exponential moving average without bias towards 0; null stays null and is skipped. */
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

/** Return the indices to draw: the range and one point beyond each end, thinned to the extremes of each stretch. */
function points(steps, values, most) {
  const [low, high] = chosen.range ?? [-Infinity, Infinity];
  const beyond = steps.findIndex((step) => step > high);
  const first = Math.max(0, steps.findLastIndex((step) => step < low));
  const last = beyond < 0 ? steps.length - 1 : beyond;
  const stretch = Math.max(1, Math.ceil((2 * (last - first + 1)) / most));
  const kept = new Set([first]);
  for (let start = first; start <= last; start += stretch) {
    const own = Array.from({ length: Math.min(stretch, last - start + 1) }, (_, i) => start + i);
    const real = own.filter((i) => values[i] !== null);
    const extreme = (better) => real.reduce((best, i) => (better(values[i], values[best]) ? i : best), real[0]);
    const gap = own.find((i) => values[i] === null);
    for (const i of [extreme((a, b) => a < b), extreme((a, b) => a > b), gap]) if (i !== undefined) kept.add(i);
  }
  return [...kept.add(last)].sort((a, b) => a - b);
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
      const kept = points(curves.steps, values, MAX_POINTS / own.length);
      traces.push({
        type: "scatter",
        mode: kept.length > 1 && kept.length * own.length > MAX_MARKERS ? "lines" : "lines+markers",
        x: kept.map((i) => curves.steps[i]),
        y: kept.map((i) => values[i]),
        opacity,
        line: { color: palette[place], width: 1.4, dash: dash(place) },
        marker: { size: kept.length > 1 ? 4 : 8 },
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
  uirevision: "kept", // keeps the pressed button
  hoverlabel: { bgcolor: "#fff", bordercolor: LINE, font: { ...FONT, size: 12 }, align: "left" },
  modebar: { bgcolor: "rgba(255,255,255,0.8)", color: NO_COLOUR, activecolor: INK },
  ...more,
});

function drawCurves(palette) {
  for (const chart of document.querySelectorAll(".curves")) {
    const fresh = !chart.data;
    Plotly.react(
      chart,
      curveTraces(chart, palette),
      layout({
        margin: { l: 52, r: 12, t: 34, b: 30 },
        xaxis: { range: [...(chosen.range ?? WHOLE)], gridcolor: LINE, zeroline: false, uirevision: String(chosen.range) + chosen.resets },
        yaxis: { autorange: true, gridcolor: LINE, zeroline: false, nticks: 6, uirevision: chosen.resets },
      }),
      CONFIG,
    );
    if (fresh) chart.on("plotly_relayout", follow);
  }
}

/** Zoom all charts to the range of one. */
function follow(change) {
  const range = change["xaxis.range"] ?? ("xaxis.range[0]" in change ? [change["xaxis.range[0]"], change["xaxis.range[1]"]] : null);
  if (range) chosen.range = [...range];
  else if (change["xaxis.autorange"]) showWhole();
  draw();
}

function showWhole() {
  chosen.range = null;
  chosen.resets++;
}

function drawPath(palette) {
  const traces = [];
  for (const place of shown()) {
    const curves = runs[place].curves.val;
    const [alignment, uniformity] = ["val/alignment", "val/uniformity"].map((name) => curves?.metrics[name]);
    const kept = (curves?.steps ?? []).flatMap((_, i) => (alignment?.[i] != null && uniformity?.[i] != null ? [i] : []));
    if (!kept.length) continue;
    const last = kept.length - 1;
    const dev = (i) => curves.metrics[runs[place].monitor]?.[i];
    const score = (i) => (runs[place].factor * dev(i)).toFixed(runs[place].decimals);
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
      text: kept.map((i) => `step ${curves.steps[i]}` + (dev(i) == null ? "" : `<br>dev <b>${score(i)}</b>`)),
      hovertemplate: "%{meta[1]}<br>%{text}<br>uniformity %{x:.3f}<br>alignment %{y:.3f}<extra></extra>",
    });
  }
  const path = document.getElementById("path");
  const axis = (title) => ({ title: { text: title }, gridcolor: LINE, zeroline: false, automargin: true, uirevision: "own" });
  Plotly.react(path, traces, layout({ margin: { l: 60, r: 20, t: 34, b: 50 }, xaxis: axis("uniformity"), yaxis: axis("alignment") }), CONFIG);
}
