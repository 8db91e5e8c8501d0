// Parallel coordinates of sweeps.

function drawParallel(palette) {
  for (const chart of document.querySelectorAll(".parallel")) {
    const sweep = Number(chart.dataset.sweep);
    const { jobs, axes } = page.parallel[sweep];
    const place = new Map(runs.map((run, i) => [run.label, i]));
    const lines = jobs.flatMap((job, i) => (chosen.checked.has(place.get(job)) ? [i] : []));
    const before = new Map((chart.data?.[0].dimensions ?? []).map((own) => [own.name, own]));
    const order = before.size ? [...before.keys()] : axes.map((axis) => axis.label);
    const fresh = !chart.data;
    if (fresh) chart.style.minWidth = `${9 * axes.length}rem`; // narrower screens scroll
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
        // one colour per line, as in the other charts
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

/** Show only the runs of a sweep inside the ranges marked on its axes. */
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
