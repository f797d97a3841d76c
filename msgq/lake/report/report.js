"use strict";
const data = name => JSON.parse(document.getElementById(name)?.textContent ?? "null");
const all = (selector, parent = document) => [...parent.querySelectorAll(selector)];
const span = data("span") ?? [];
const marks = data("marks") ?? [];
const markColors = data("mark-colors") ?? {};
const MARKS_MAX = 40;

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function formatMicroseconds(value) {
  const [unit, name] = value >= 1e6 ? [1e6, "s"] : value >= 1e3 ? [1e3, "ms"] : [1, "us"];
  return `${Number((value / unit).toPrecision(3))} ${name}`;
}

// ---- plots ----

function addMarks(place, figure) {
  const chosen = marks.filter(mark => !place.dataset.endpoint || mark.endpoint === place.dataset.endpoint);
  const shown = chosen.slice(0, MARKS_MAX);
  figure.layout.shapes = shown.map(mark => ({
    type: "rect", x0: mark.from, x1: mark.to, yref: "paper", y0: 0, y1: 1, layer: "below",
    fillcolor: markColors[mark.kind], opacity: place.dataset.endpoint ? .3 : .12, line: {width: 0},
  }));
  if (!shown.length) return;
  figure.data.push({
    type: "scatter", mode: "markers", name: "marks", showlegend: false, yaxis: "y9", x: shown.map(mark => mark.from),
    y: shown.map(() => 0), text: shown.map(mark => `${mark.endpoint}<br>${mark.text}`), hoverinfo: "text", cliponaxis: false,
    marker: {symbol: "triangle-up", size: 9, color: shown.map(mark => markColors[mark.kind])},
  });
  figure.layout.yaxis9 = {overlaying: "y", range: [0, 1], visible: false, fixedrange: true};
}

function styleAxes(layout) {
  const lines = {gridcolor: color("--line"), linecolor: color("--line"), zerolinecolor: color("--line"), automargin: true};
  for (const name of ["xaxis", "yaxis", "yaxis2"]) {
    if (name !== "yaxis2" || layout[name]) layout[name] = Object.assign({}, layout[name], lines);
  }
}

function prepareFigure(place) {
  const figure = JSON.parse(place.querySelector("script").textContent);
  const layout = Object.assign(figure.layout, {
    paper_bgcolor: color("--back"), plot_bgcolor: color("--back"), font: {color: color("--text")},
  });
  styleAxes(layout);
  for (const trace of figure.data) {
    if (trace.meta === "log_us") trace.text = trace.z.map(row => row.map(v => v === null ? "" : formatMicroseconds(10 ** v)));
  }
  if (place.dataset.time !== undefined) {
    layout.xaxis = Object.assign(layout.xaxis, {type: "date", range: [...(place.range ?? span)], title: {text: "time (UTC)"}});
    addMarks(place, figure);
  }
  if (innerWidth < 800) layout.legend = {orientation: "h", y: -.3};
  return figure;
}

async function draw(place) {
  const figure = prepareFigure(place);
  const canvas = place.querySelector(".canvas") ?? place.appendChild(document.createElement("div"));
  canvas.className = "canvas";
  await Plotly.react(canvas, figure.data, figure.layout, {
    responsive: true, displaylogo: false, displayModeBar: place.dataset.endpoint ? false : "hover",
  });
  if (!place.dataset.drawn && place.dataset.time !== undefined) canvas.on("plotly_relayout", followZoom);
  place.dataset.drawn = "yes";
}

// ---- one time range for all plots ----

function followZoom(change) {
  if (change["xaxis.autorange"]) zoomAll(...span);
  else if (change["xaxis.range[0]"]) zoomAll(change["xaxis.range[0]"], change["xaxis.range[1]"]);
}

function zoomAll(from, to) {
  for (const place of all(".plot[data-time]")) {
    const canvas = place.querySelector(".canvas");
    const now = canvas?._fullLayout?.xaxis.range ?? [];
    place.range = [from, to];
    if (canvas && (toMs(now[0]) !== toMs(from) || toMs(now[1]) !== toMs(to))) {
      Plotly.relayout(canvas, {"xaxis.range": [from, to], "xaxis.autorange": false});
    }
  }
  const seconds = time => ((toMs(time) - toMs(span[0])) / 1000).toFixed(1);
  const inputs = all(".zoom input");
  if (inputs.length) [inputs[0].value, inputs[1].value] = [seconds(from), seconds(to)];
}

function toMs(time) {
  return Date.parse(String(time).replace(" ", "T").replace(/(\.\d{3})\d*/, "$1").replace(/Z?$/, "Z"));
}

function zoomToInputs() {
  const times = all(".zoom input").map(input => new Date(toMs(span[0]) + input.value * 1000).toISOString());
  if (times[0] < times[1]) zoomAll(...times);
}

// ---- tables ----

function makeSortable(table) {
  const heads = all("th", table);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sortRows(table, heads, column));
  });
}

function readCell(row, column) {
  const text = row.cells[column].textContent;
  const number = Number(text.replaceAll(",", ""));
  return text === "-" ? -Infinity : text === "" || Number.isNaN(number) ? text : number;
}

function sortRows(table, heads, column) {
  const rows = all("tbody tr", table).map(row => [readCell(row, column), row]);
  const isText = rows.some(([value]) => typeof value === "string");
  const order = heads[column].getAttribute("aria-sort");
  const down = order ? order === "ascending" : !isText;
  heads.forEach(head => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
  const compare = (a, b) => isText ? String(a).localeCompare(String(b), "en", {numeric: true}) : a - b;
  rows.sort(([a], [b]) => down ? compare(b, a) : compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

function filterRows(input) {
  const words = input.value.toLowerCase().split(" ");
  const rows = all("tbody tr", input.closest("section"));
  rows.forEach(row => { row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word)); });
  const shown = rows.filter(row => !row.hidden).length;
  input.closest("section").querySelector("output").textContent = `${shown} of ${rows.length} rows`;
}

async function copyCommand(button) {
  await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
  button.textContent = "Copied";
}

const drawAll = () => all(".plot").forEach(draw);
drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
all("table.sortable").forEach(makeSortable);
all("input[type=search]").forEach(input => input.addEventListener("input", () => filterRows(input)));
all(".copy").forEach(button => button.addEventListener("click", () => copyCommand(button)));
all(".zoom input").forEach(input => input.addEventListener("change", zoomToInputs));
document.getElementById("whole")?.addEventListener("click", () => zoomAll(...span));
