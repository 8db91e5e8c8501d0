// The table of runs, the tools above it, and drawing everything.

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
  document.querySelector("#tools output").textContent = chosen.smoothing.toFixed(2);
}

let waiting = false;

/** Draw everything once before the browser's next frame, however often this is called. */
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

/** Sort a table by a column: numbers by value, before words; missing values come last. */
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
  const on = (target, event, act) => target.addEventListener(event, (own) => (act(own.target), draw()));
  for (const header of document.querySelectorAll("th")) header.addEventListener("click", () => sort(header));
  for (const row of document.querySelectorAll("#runs tbody tr")) {
    const place = Number(row.dataset.run);
    on(row.querySelector("input"), "change", (box) => chosen.checked[box.checked ? "add" : "delete"](place));
    on(row.querySelector(".only"), "click", () => (chosen.checked = new Set([place])));
  }
  on(element("all"), "click", () => (chosen.checked = new Set(runs.keys())));
  on(element("none"), "click", () => chosen.checked.clear());
  on(element("whole"), "click", showWhole);
  on(element("smoothing"), "input", (slider) => (chosen.smoothing = Number(slider.value)));
  element("smoothing").value = chosen.smoothing;
  const choices = [["run", "run"], ["dev", "score on dev"], ...page.options.map((name) => [`=${name}`, name])];
  element("colour").append(...choices.map(([value, name]) => new Option(name, value, false, value === chosen.colour)));
  on(element("colour"), "change", (select) => (chosen.colour = select.value));
}

listen();
draw();
