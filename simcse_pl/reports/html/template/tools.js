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
    showWhole();
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
