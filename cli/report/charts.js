// Charts by Chart.js, in figures that can be saved, and buttons that hide a row in all of them.

const charts = [];         // {config, canvas, chart} of each figure
const hidden = new Set();  // rows that the reader has switched off

const css = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const colourOf = row => (rows.includes(row) ? `s${rows.indexOf(row) % 8}` : 'soft');
const isAgain = row => rows.indexOf(row) >= 8;  // further rows have the colours of the first again, dashed
const chip = (row, tag = 'span') => el(`${tag}.chip.${colourOf(row)}${isAgain(row) ? '.again' : ''}`, row);

// Appends the rows of cells as buttons.
function legend(parent, cells) {
  const names = rows.filter(row => cells.some(cell => cell.row === row));
  const button = row => Object.assign(chip(row, 'button'), { ariaPressed: 'true', onclick: () => toggle(row) });
  if (names.length > 1) parent.append(el('p.legend', ...names.map(button)));
}

function toggle(row) {
  if (!hidden.delete(row)) hidden.add(row);
  for (const button of document.querySelectorAll('.legend button')) {
    button.classList.toggle('off', hidden.has(button.textContent));
    button.ariaPressed = String(!hidden.has(button.textContent));
  }
  redraw();
}

// Draws all charts but those in closed folds.
function redraw() {
  Object.assign(Chart.defaults, { color: css('soft'), borderColor: css('rule') });
  for (const entry of charts.filter(({ canvas }) => !canvas.closest('details:not([open])'))) {
    entry.chart?.destroy();
    entry.chart = new Chart(entry.canvas, entry.config());
  }
}

// Returns the options of an axis: its title, and others of Chart.js.
const axis = ({ title, ...options }) => ({ beginAtZero: options.min === undefined,
  grace: options.max === undefined ? '5%' : 0, ...options, title: { display: Boolean(title), text: title } });

// Appends a figure with a chart.
//   sets: returns data sets of Chart.js, since colours change with the theme. A point is {x, y}, with the `range` of
//   its seeds, with the reason if it `failed`, or with all the `text` that it shows.
//   scales: {x, y}, each with its title and options of Chart.js. flat: bars lie. mode: which points the pointer finds.
//   valueText: writes a value. extras: {rule, marks, names} of the plugin below.
function figure(parent, title, note, sets, scales, { flat, mode = 'index', valueText = number, wide, ...extras } = {}) {
  const [along, value] = flat ? ['y', 'x'] : ['x', 'y'];
  const pointText = ({ [value]: middle, range: [low, high] = [], failed }) =>
    failed ?? valueText(middle) + (high > low ? ` (${valueText(low)} to ${valueText(high)})` : '');
  const place = ({ chart, raw }) =>
    mode === 'holds' ? number(chart.scales.x.getValueForPixel(chart.pointer)) : raw[along];
  const callbacks = { label: ({ dataset, raw }) => raw.text ?? `${dataset.label}: ${pointText(raw)}`,
    title: ([item]) => item && [scales[along].title, place(item)].filter(Boolean).join(': ') };
  const itemSort = (a, b) => (mode === 'holds' ? b.parsed.y - a.parsed.y : 0);
  const room = Math.max(0, ...(extras.names ?? []).map(name => 8 + 7 * name.length));
  const config = ({ hasLegend = false } = {}) => ({ data: { datasets: sets() }, options: {
    indexAxis: along, interaction: { mode, axis: along }, layout: { padding: { right: room } },
    scales: Object.fromEntries(Object.entries(scales).map(([name, options]) => [name, axis(options)])),
    plugins: { extras, legend: { display: hasLegend }, tooltip: { callbacks, itemSort } },
  } });
  const canvas = Object.assign(el('canvas'), { role: 'img', ariaLabel: title });
  const svg = () => svgOf(config({ hasLegend: mode !== 'holds' }), canvas);
  parent.append(el(wide ? 'figure.wide' : 'figure', el('figcaption', el('b', title), el('span', note),
    saveButton('SVG', `${title}.svg`, 'image/svg+xml', svg)), el('div.canvas', canvas)));
  charts.push({ config, canvas });
}

// Returns what the data sets of a row have in common.
const setOf = (row, data, colour = css(colourOf(row))) => (
  { label: row, data, hidden: hidden.has(row), borderColor: colour, backgroundColor: colour });

// Returns the data sets of a curve: the band of its ranges, if any, and the line, in steps unless `look` differs.
function curveSets({ row, points, look }) {
  const line = { type: 'line', ...setOf(row, points), borderWidth: 2, borderDash: isAgain(row) ? [6, 4] : [],
    pointRadius: points.length === 1 ? 3 : 0, stepped: true, ...look };
  const edge = end => ({ ...line, label: '', data: points.map(({ x, range }) => ({ x, y: range[end] })), borderWidth: 0,
    pointRadius: 0, pointHoverRadius: 0 });
  const varies = points.some(({ range }) => range && range[1] > range[0]);
  return varies ? [edge(1), { ...edge(0), fill: '-1', backgroundColor: `${line.borderColor}26` }, line] : [line];
}

const kLogarithmic = { type: 'logarithmic', ticks: { autoSkip: false,
  callback: value => (/^[125](\.0*)?e/.test(value.toExponential()) ? String(+value.toPrecision(3)) : '') } };

// Appends a figure of curves: {row, points, look}. log: the axis of the values is logarithmic.
function curvesFigure(parent, title, note, curves, x, { log, valueText, ...y }, extras) {
  const names = curves.length > 1 ? curves.map(({ row }) => row) : null;
  figure(parent, title, note, () => curves.flatMap(curveSets), { x: { type: 'linear', ...x },
    y: { ...y, ...(log ? kLogarithmic : {}) } }, { mode: 'holds', valueText, names, ...extras });
}

// ---- what Chart.js lacks ----

Chart.defaults.set({
  animation: false, maintainAspectRatio: false, font: { family: 'system-ui, sans-serif' },
  interaction: { intersect: false }, plugins: { tooltip: { position: 'pointer' } },
  scale: { ticks: { maxRotation: 0, includeBounds: false } },
});
Chart.Tooltip.positioners.pointer = (items, { x, y }) => ({ x, y });

// Finds the newest point of each curve at the pointer.
Chart.Interaction.modes.holds = (chart, { x }) => chart.getSortedVisibleDatasetMetas().flatMap(meta => {
  const { data, label } = chart.data.datasets[meta.index];
  const index = data.findLastIndex(point => point.x <= chart.scales.x.getValueForPixel(x));
  const found = label && Number.isFinite(data[index]?.y);
  return found ? [{ element: meta.data[index], datasetIndex: meta.index, index }] : [];
});

function drawLine({ ctx }, colour, dash, ...points) {
  Object.assign(ctx, { strokeStyle: css(colour), lineWidth: 1.2 });
  ctx.setLineDash(dash);
  ctx.beginPath();
  for (const [x, y] of points) ctx.lineTo(x, y);
  ctx.stroke();
}

function drawText({ ctx }, text, x, y, colour, textAlign, textBaseline) {
  Object.assign(ctx, { fillStyle: css(colour), textAlign, textBaseline, font: '12px system-ui, sans-serif' });
  ctx.fillText(text, x, y);
}

// A vertical line with a text beside it.
function drawMark(chart, { x, text }) {
  const { left, right, top, bottom } = chart.chartArea, at = chart.scales.x.getPixelForValue(x);
  drawLine(chart, 'bad', [4, 3], [at, top], [at, bottom]);
  drawText(chart, ` ${text} `, at, top + 2, 'bad', at > (left + right) / 2 ? 'right' : 'left', 'top');
}

// Whiskers from the lowest to the highest value of a bar, or a cross if it has none.
function drawWhiskers(chart, { x }, { range: [low, high] = [], failed }, row) {
  const { y } = chart.scales, left = x - 3, right = x + 3;
  if (failed) drawText(chart, '×', x, y.getPixelForValue(0), colourOf(row), 'center', 'bottom');
  if (!(high > low)) return;
  const from = y.getPixelForValue(low), to = Math.max(y.getPixelForValue(high), chart.chartArea.top);
  drawLine(chart, 'text', [], [left, to], [right, to], [x, to], [x, from], [left, from], [right, from]);
}

// The names of curves at their ends, none over another.
function drawNames(chart, metas) {
  const { right, top, bottom } = chart.chartArea;
  const ends = metas.map(({ label, data }) => ({ label, y: data.findLast(point => !point.skip)?.y }))
    .filter(({ label, y }) => label && y !== undefined).sort((a, b) => a.y - b.y);
  ends.reduce((least, { label, y }, i) => {
    const at = Math.min(Math.max(y, least), bottom - 13 * (ends.length - 1 - i));
    drawText(chart, label, right + 5, at, colourOf(label), 'left', 'middle');
    return at + 13;
  }, top);
}

Chart.register({
  id: 'extras',
  beforeEvent(chart, { event }) { chart.pointer = event.x; },
  afterDatasetsDraw(chart, _, { rule, marks, names }) {
    const { ctx, chartArea: { left, right, top, bottom }, data: { datasets } } = chart;
    const metas = chart.getSortedVisibleDatasetMetas(), level = chart.scales.y.getPixelForValue(rule ?? NaN);
    const isPointed = chart.tooltip?.opacity && chart.options.interaction.mode === 'holds';
    ctx.save();
    if (Number.isFinite(level)) drawLine(chart, 'text', [3, 4], [left, level], [right, level]);
    if (isPointed) drawLine(chart, 'soft', [2, 3], [chart.pointer, top], [chart.pointer, bottom]);
    for (const mark of marks ?? []) drawMark(chart, mark);
    for (const { type, label, index, data } of metas)
      if (type === 'bar') data.forEach((bar, i) => drawWhiskers(chart, bar, datasets[index].data[i], label));
    if (names) drawNames(chart, metas);
    ctx.restore();
  },
});
