// The charts of heddle-bench report, by Chart.js; report.py wrote the data beside this script.
const data = JSON.parse(document.getElementById("data").textContent);
// Okabe and Ito's colours: told apart by everybody, and in print.
const DARK = matchMedia("(prefers-color-scheme: dark)");
const COLOURS = DARK.matches
  ? ["#4ea8de", "#f0803c", "#2fbf98", "#dd95bd", "#f2b632", "#8fd0f7", "#c08a5a", "#a8a8a8"]
  : ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8b5a2b", "#7f7f7f"];
const MARKS = ["circle", "rect", "triangle", "rectRot", "star", "crossRot"];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A colour and a mark for each row, alike in all charts.
const rows = [...new Set(data.results.flatMap((r) => Object.keys(r.cdf).concat(r.points.map((p) => p.row))))];
const colourOf = (row) => (row.startsWith("alone/") ? css("--soft") : COLOURS[rows.indexOf(row) % COLOURS.length]);
const markOf = (row) => MARKS[Math.floor(rows.indexOf(row) / COLOURS.length) % MARKS.length];

const axis = (text, more = {}) => ({
  title: { display: true, text, color: css("--soft") },
  grid: { color: css("--line") },
  ticks: { color: css("--soft"), maxRotation: 0, callback: (v) => +Number(v).toPrecision(3) },
  ...more,
});
// Of the many lines of a logarithmic axis those are named that people read.
const logAxis = (text, more = {}) => axis(text, { type: "logarithmic",
  ticks: { color: css("--soft"), maxRotation: 0,
    callback: (v) => ([1, 2, 5].includes(+(v / 10 ** Math.floor(Math.log10(v) + 1e-9)).toPrecision(3))
      ? +Number(v).toPrecision(3) : "") },
  ...more });
const legend = (more) => ({ position: "bottom",
  labels: { color: css("--ink"), usePointStyle: true, boxWidth: 9, boxHeight: 7, ...more } });

// An interval's ends; of few repetitions, which have none, the value.
const high = (figure) => figure.hi ?? figure.value;
const low = (figure) => figure.lo ?? figure.value;

// Lines from least to most of a mark, on both sides.
const intervals = {
  id: "intervals",
  beforeDatasetsDraw(chart) {
    const { ctx, scales: { x, y } } = chart;
    for (const set of chart.data.datasets) {
      for (const point of set.data) {
        if (!point.p99 || !chart.isDatasetVisible(chart.data.datasets.indexOf(set))) continue;
        const px = x.getPixelForValue(point.x), py = y.getPixelForValue(point.y);
        ctx.strokeStyle = set.borderColor;
        ctx.lineWidth = 1;
        ctx.beginPath();
        ctx.moveTo(x.getPixelForValue(low(point.rate)), py);
        ctx.lineTo(x.getPixelForValue(high(point.rate)), py);
        ctx.moveTo(px, y.getPixelForValue(Math.max(low(point.p99), y.min)));
        ctx.lineTo(px, y.getPixelForValue(high(point.p99)));
        ctx.stroke();
      }
    }
  },
};

function frontier(result, canvas) {
  const logarithmic = Math.max(...result.points.map((p) => p.p99.value)) > 4;
  const least = Math.min(1, ...result.points.map((p) => p.p99.value));
  const most = Math.max(1.1, ...result.points.map((p) => high(p.p99)));
  new Chart(canvas, {
    type: "scatter",
    plugins: [intervals],
    data: {
      datasets: result.points.map((p) => ({
        label: p.row,
        data: [{ x: p.rate.value, y: p.p99.value, ...p }],
        borderColor: colourOf(p.row),
        backgroundColor: p.policy ? colourOf(p.row) : css("--card"),
        pointStyle: markOf(p.row),
        radius: 6,
        hoverRadius: 8,
        borderWidth: 2,
      })),
    },
    options: {
      maintainAspectRatio: false,
      animation: false,
      scales: {
        x: axis(`${result.job}: rate ÷ alone`, {
          min: 0, suggestedMax: Math.max(1, ...result.points.map((p) => high(p.rate))) }),
        y: (logarithmic ? logAxis : axis)(`${result.service}: p99 ÷ alone`,
          { suggestedMax: most, [logarithmic ? "min" : "suggestedMin"]: least * 0.9 }),
      },
      plugins: {
        legend: legend({}),
        tooltip: {
          callbacks: {
            label: ({ raw }) => `${raw.row}: p99 ${raw.p99.value.toFixed(2)}, mean ${raw.mean.value.toFixed(2)}, ` +
              `${result.job} ${raw.rate.value.toFixed(2)}`,
          },
        },
      },
    },
  });
}

function cdf(result, canvas) {
  new Chart(canvas, {
    type: "scatter",
    data: {
      datasets: Object.entries(result.cdf).map(([row, points]) => ({
        label: row,
        data: points.map(([x, y]) => ({ x, y })),
        showLine: true,
        stepped: points.length < 50,
        radius: 0,
        borderColor: colourOf(row),
        borderWidth: result.points.some((p) => p.row === row && p.policy) ? 2.5 : 1.5,
        borderDash: row.startsWith("alone/") ? [5, 3] : [],
      })),
    },
    options: {
      maintainAspectRatio: false,
      animation: false,
      interaction: { mode: "nearest", axis: "xy", intersect: false },
      scales: {
        x: logAxis("ms"),
        y: axis(`share of ${result.unit}s`, { min: 0, max: 1 }),
      },
      plugins: {
        legend: legend({ pointStyle: "line", boxWidth: 22 }),
        tooltip: { callbacks: { label: ({ raw, dataset }) =>
          `${dataset.label}: ${(100 * raw.y).toFixed(0)} % within ${raw.x.toPrecision(3)} ms` } },
      },
    },
  });
}

// Wheel and drag change what the x axis shows; double click shows all again.
function zoomable(chart, canvas, whole) {
  const show = (min, max) => {
    const length = Math.min(max - min, whole);
    const begin = Math.max(0, Math.min(min, whole - length));
    chart.options.scales.x.min = begin;
    chart.options.scales.x.max = begin + length;
    chart.update("none");
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x } = chart.scales, at = x.getValueForPixel(event.offsetX);
    const factor = Math.exp(event.deltaY / 400);
    if (factor < 1 && x.max - x.min < 0.01) return;
    show(at - (at - x.min) * factor, at + (x.max - at) * factor);
  }, { passive: false });
  let from = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    from = { px: event.offsetX, min: chart.scales.x.min, max: chart.scales.x.max };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from) return;
    const moved = (from.px - event.offsetX) * (from.max - from.min) / chart.chartArea.width;
    show(from.min + moved, from.max + moved);
  });
  canvas.addEventListener("pointerup", () => { from = null; });
  canvas.addEventListener("dblclick", () => show(0, whole));
}

// Bars as thick lines, broken by points that are none: a canvas draws many thousands of them.
function timeline(trace, canvas) {
  const clients = [...new Set(trace.lanes.map((lane) => lane.client))];
  const bars = (spans, y, more) => ({
    data: spans.flatMap(([begin, end, name]) => [{ x: begin, y, begin, end, name }, { x: end, y, begin, end, name },
      { x: NaN, y: NaN }]),
    showLine: true,
    radius: 0,
    hoverRadius: 0,
    ...more,
  });
  const datasets = trace.lanes.flatMap((lane, i) => {
    const colour = COLOURS[clients.indexOf(lane.client) % COLOURS.length];
    return [bars(lane.kernels, -i, { borderColor: colour, borderWidth: 18, label: lane.name }),
      bars(lane.waits, -i - 0.33, { borderColor: css("--soft"), borderWidth: 3, label: `${lane.name} waits` })];
  });
  const chart = new Chart(canvas, {
    type: "scatter",
    data: { datasets },
    options: {
      maintainAspectRatio: false,
      animation: false,
      normalized: true,
      interaction: { mode: "nearest", axis: "xy", intersect: false },
      elements: { line: { borderCapStyle: "butt" } },
      scales: {
        x: axis("ms", { min: 0, max: Math.min(trace.until_ms, 60),
          ticks: { color: css("--soft"), maxRotation: 0, includeBounds: false, callback: (v) => +v.toFixed(4) } }),
        y: axis("", {
          title: { display: false },
          min: -trace.lanes.length + 0.4,
          max: 0.5,
          grid: { display: false },
          afterBuildTicks: (y) => { y.ticks = trace.lanes.map((_, i) => ({ value: -i })); },
          ticks: { color: css("--ink"), callback: (v) => trace.lanes[-v]?.name, autoSkip: false },
        }),
      },
      plugins: {
        legend: { display: false },
        tooltip: { callbacks: { label: ({ raw, dataset }) =>
          (raw.name === undefined ? dataset.label : `${dataset.label}: ${trace.names[raw.name]}`) +
          `, ${(1e3 * (raw.end - raw.begin)).toFixed(0)} µs from ${raw.begin.toFixed(3)} ms` } },
      },
    },
  });
  zoomable(chart, canvas, trace.until_ms);
}

const at = (name, i) => document.getElementById(`${name}${i}`);
data.results.forEach((result, i) => {
  frontier(result, at("frontier", i));
  cdf(result, at("cdf", i));
});
data.timelines.forEach((trace, i) => timeline(trace, at("timeline", i)));
DARK.addEventListener("change", () => location.reload());
