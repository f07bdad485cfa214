// Draws a report from its data: tables, charts by Chart.js, and both as files for a paper. Asks nothing of the network.
(() => {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const metric = data.metric;
  const rows = data.rows;  // names of strategies (and codecs), in the order of their colours
  const compare = data.compare || { links: [], runs: [runOfFolder()] };
  const target = Number.isFinite(compare.target) ? compare.target : null;
  const runs = compare.runs.map(run => ({ ...run, row: run.codec ? `${run.strategy} ${run.codec}` : run.strategy, link: run.link || '' }));
  const links = [...new Set(runs.map(run => run.link))].sort((a, b) => (a !== '') - (b !== ''));  // loopback first
  const hidden = new Set();  // rows that the reader has switched off
  const charts = [];

  // Returns one run, with its evaluations, as an entry of compare.json.
  function runOfFolder() {
    const curve = [];
    for (const m of data.metrics.filter(m => m.test_step != null)) {
      // After a lost server the run returned to a checkpoint: the later evaluation of a step counts.
      while (curve.length && curve.at(-1).step >= m.test_step) curve.pop();
      curve.push({ seconds: m.test_seconds ?? m.seconds, samples: m.test_samples, step: m.test_step, test_loss: m.test_loss,
        train_loss: m.loss, test_value: m.heads?.[0]?.value ?? m.test_accuracy });
    }
    return { ...(data.summary || {}), strategy: rows[0], workers: data.workers, seed: 0, failure: null, curve };
  }

  // ---- text ----
  const plural = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`;
  const decimalsFor = largest => !Number.isFinite(largest) || largest >= 100 || largest <= 0 ? 0
    : Math.min(Math.max(2 - Math.floor(Math.log10(largest)), 0), 5);
  const fixed = (value, digits) => value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const number = value => value !== 0 && Math.abs(value) < 1e-4 ? value.toExponential(1) : fixed(value, decimalsFor(Math.abs(value)));
  const orDash = value => Number.isFinite(value) ? number(value) : '–';
  const metricText = value => (value * metric.scale).toFixed(metric.digits) + metric.unit;
  const targetText = () => `${+(target * metric.scale).toPrecision(6)}${metric.unit} test ${metric.name}`;
  const linkName = link => link || 'loopback';
  const style = row => `s${rows.indexOf(row) % 8}${rows.indexOf(row) < 8 ? '' : ' again'}`;
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const colourOf = row => css(`s${rows.indexOf(row) % 8}`);

  // Text from outside becomes text nodes, never markup.
  function el(tag, properties = {}, ...children) {
    const out = Object.assign(document.createElement(tag), properties);
    out.append(...children.filter(child => child != null));
    return out;
  }
  const chip = row => el('span', { className: `chip ${style(row)}` }, row);
  const soft = (...text) => el('p', { className: 'soft' }, ...text);

  function save(name, text, type) {
    el('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name.replace(/[^\w.-]+/g, '-') }).click();
  }

  // ---- figures: a measure over the seeds of a cell ----
  // Returns the cells (row, workers, seeds that succeeded and failed) of a link by workers, then by row.
  function cellsOf(link) {
    const cells = new Map();
    for (const run of runs.filter(run => run.link === link)) {
      const key = run.workers * 1000 + rows.indexOf(run.row);
      const cell = cells.get(key) || { row: run.row, workers: run.workers, servers: run.servers, good: [], failed: [] };
      cells.set(key, cell);
      cell.tuned = run.tuned || cell.tuned;
      (run.failure ? cell.failed : cell.good).push(run);
    }
    return [...cells].sort((a, b) => a[0] - b[0]).map(([, cell]) => cell);
  }
  const workersOf = cells => [...new Set(cells.map(cell => cell.workers))];

  // Of a measure to the target, a run without a value counts as later than all others.
  function figure(cell, measure) {
    const there = cell.good.map(measure.value).filter(Number.isFinite).sort((a, b) => a - b);
    const asked = measure.target ? cell.good.length + cell.failed.length : there.length;
    if (!there.length && !(measure.target && cell.good.length)) return null;
    const all = [...there, ...Array(asked - there.length).fill(Infinity)];
    const half = all.length >> 1;
    return { median: all.length % 2 ? all[half] : (all[half - 1] + all[half]) / 2, min: there[0] ?? Infinity,
      max: there.at(-1) ?? Infinity, count: there.length, asked };
  }

  // Clear: two seeds or more, all better than every seed of the others.
  function winner(cells, workers, measure) {
    const sign = measure.lower ? 1 : -1;
    const all = cells.filter(cell => cell.workers === workers).map(cell => ({ cell, figure: figure(cell, measure) }))
      .filter(entry => entry.figure && Number.isFinite(entry.figure.median)).sort((a, b) => sign * (a.figure.median - b.figure.median));
    if (!all.length) return null;
    const [best, next] = all;
    const edge = (figure, worst) => sign * (measure.lower === worst ? figure.max : figure.min);
    const clear = best.figure.count > 1 && best.figure.count === best.figure.asked && all.length > 1 &&
      all.slice(1).every(other => edge(best.figure, true) < edge(other.figure, false));
    return { best, next, clear };
  }

  function sameBits(a, b) {
    const pairs = a.good.flatMap(run => b.good.filter(other => other.seed === run.seed).map(other => [run, other]))
      .filter(([run]) => run.weights_sha256);
    return pairs.length > 0 && pairs.every(([run, other]) => run.weights_sha256 === other.weights_sha256);
  }

  const partner = (run, strategy, workers) => runs.find(other => !other.failure && other.strategy === strategy &&
    other.workers === workers && other.seed === run.seed && other.link === run.link && other.codec === run.codec);

  const fewest = Math.min(...runs.map(run => run.workers));
  const rate = { name: 'samples/s', unit: 'median, range', value: run => run.samples_per_second, lower: false };
  const scaling = { name: 'scaling', unit: `× own ${plural(fewest, 'worker')}`, lower: false, plain: true,
    value: run => run.samples_per_second / partner(run, run.strategy, fewest)?.samples_per_second };
  const final = { name: `final ${metric.name}`, unit: 'median, range', value: run => run.test_value ?? NaN, lower: !metric.higher, text: metricText };
  const toTarget = (name, unit, value) => ({ name, unit, value, lower: true, target: true });
  const targets = target === null ? [] : [
    toTarget('time to target', 'seconds', run => run.seconds_to_target ?? NaN),
    toTarget('samples to target', '', run => run.samples_to_target ?? NaN),
    toTarget('CPU to target', 'seconds', run => run.cpu_seconds_to_target ?? NaN),
    toTarget('bytes to target', 'MB', run => (run.bytes_to_target ?? NaN) / 1e6)];
  const besideSync = measure => ({ ...measure, target: false, unit: measure.text ? 'minus sync' : '÷ sync', even: measure.text ? 0 : 1,
    text: measure.text || (value => value.toFixed(2)),
    value: run => {
      const sync = partner(run, 'sync', run.workers);
      if (!sync) return NaN;
      return measure.text ? measure.value(run) - measure.value(sync) : measure.value(run) / measure.value(sync);
    } });
  const parts = ['compute', 'push', 'wait', 'pull'];
  const split = parts.map(part => ({ name: part, unit: 'ms', value: run => run.split ? run.split[part] * 1e3 : NaN, plain: true }));
  const roles = [...new Set(runs.flatMap(run => Object.keys(run.cpu_seconds_per_role || {})))].sort();
  const costs = [
    { name: 'staleness', unit: 'mean', value: run => run.staleness?.mean ?? NaN },
    { name: 'staleness', unit: 'largest', value: run => run.staleness?.max ?? NaN },
    { name: 'pushed', unit: 'MB per step', value: run => run.bytes_pushed / run.steps / 1e6 },
    { name: 'pulled', unit: 'MB per step', value: run => run.bytes_pulled / run.steps / 1e6 },
    { name: 'pushes dropped', unit: '', value: run => run.pushes_dropped || NaN },
    ...roles.map(role => ({ name: `CPU ${role}s`, unit: 'seconds', value: run => run.cpu_seconds_per_role?.[role] ?? NaN })),
    ...roles.map(role => ({ name: `peak ${role}`, unit: 'MiB', value: run => run.peak_mib?.[role] ?? NaN })),
    { name: 'other processes', unit: 'cores', value: run => run.other_cores ?? NaN }].map(cost => ({ ...cost, plain: true }));

  // ---- tables ----
  // head: [name, unit in small letters]; a cell: a text, or {text | node, note, style}. A row of one cell heads a group.
  function table(about, head, body) {
    if (!body.length) return '';
    const entry = (tag, cell) => {
      const { text, node, note, style: name } = typeof cell === 'object' ? cell : { text: cell };
      return el(tag, { className: name || '' }, node || text, note ? el('small', {}, note) : null);
    };
    const last = body.at(-1);
    const out = el('table', {}, el('thead', {}, el('tr', {}, ...head.map(([text, note], i) =>
      entry('th', { text, note, style: last[i]?.style?.startsWith('n') ? 'n' : '' })))),
    el('tbody', {}, ...body.map(row => {
      const tr = el('tr', { className: row.length === 1 ? 'group' : '' }, ...row.map((cell, i) => entry(i ? 'td' : 'th', cell)));
      if (row.length === 1) tr.append(el('td', { colSpan: head.length - 1 }));
      return tr;
    })));
    const frame = el('div', { className: 'scroll', tabIndex: 0, role: 'region', ariaLabel: about }, out);
    return el('div', {}, frame, el('button', { className: 'save', title: 'Save as a LaTeX table',
      onclick: () => save(`${about}.tex`, latexOf(out), 'text/x-tex') }, 'LaTeX'));
  }

  function latexOf(table) {
    const marks = { '–': '--', '−': '$-$', '×': '$\\times$', '÷': '$\\div$', '·': '$\\cdot$', '\\': '\\textbackslash{}',
      '~': '\\textasciitilde{}', '^': '\\textasciicircum{}' };
    const escaped = text => text.replace(/[&%$#_{}~^\\–−×÷·]/g, c => marks[c] || `\\${c}`);
    const lines = [...table.rows].map(row => [...row.cells].map(cell => {
      const note = cell.querySelector('small')?.textContent;
      const text = escaped(note ? `${cell.textContent.slice(0, -note.length)} (${note})` : cell.textContent);
      return cell.classList.contains('best') ? `\\textbf{${text}}` : text;
    }).join(' & ') + ' \\\\');
    const columns = [...table.rows[0].cells].map(cell => cell.className === 'n' ? 'r' : 'l').join('');
    return `\\begin{tabular}{${columns}}\n\\hline\n${lines[0]}\n\\hline\n${lines.slice(1).join('\n')}\n\\hline\n\\end{tabular}\n`;
  }

  const num = (text, note, more) => ({ text: String(text), note, style: `n${more ? ` ${more}` : ''}` });

  // Leaves out measures without any value.
  function measuresTable(about, cells, measures, bold = () => false) {
    const head = [['strategy'], ['runs']];
    const body = cells.map(cell => {
      const all = cell.good.length + cell.failed.length;
      return [{ node: chip(cell.row), note: cell.tuned ? `tuned: ${cell.tuned}` : '' },
        cell.failed.length ? num(`${cell.failed.length} of ${all}`, 'failed', 'bad') : num(all)];
    });
    for (const measure of measures) {
      const figures = cells.map(cell => figure(cell, measure));
      if (!figures.some(Boolean)) continue;
      const digits = decimalsFor(Math.max(0, ...figures.filter(f => f?.count).map(f => Math.abs(f.max))));
      const text = value => !Number.isFinite(value) ? 'never' : measure.text ? measure.text(value) : fixed(value, digits);
      head.push([measure.name, measure.unit]);
      figures.forEach((f, i) => {
        if (!f) return body[i].push(num('–'));
        const [low, high] = [text(f.min), f.count < f.asked ? 'never' : text(f.max)];
        const note = [low === high ? '' : low + (low < '0' ? ' to ' : '–') + high, f.count < f.asked ? `${f.count} of ${plural(f.asked, 'seed')}` : ''];
        body[i].push(num(text(f.median), note.filter(Boolean).join('; '), bold(cells[i], measure, f) ? 'best' : ''));
      });
    }
    const grouped = cells.flatMap((cell, i) =>
      cell.workers === cells[i - 1]?.workers ? [body[i]] : [[plural(cell.workers, 'worker')], body[i]]);
    return table(about, head, grouped);
  }

  const resultsTable = cells => measuresTable('Results', cells, [rate, scaling, final, ...targets], (cell, measure) => {
    const found = measure.plain ? null : winner(cells, cell.workers, measure);
    return found?.clear && found.best.cell === cell;
  });

  function card(title, found, text, bits) {
    const body = el('p', {}, el('b', {}, found ? text(found.best.figure) : 'none'));
    if (found?.next) {
      body.append(`; next: ${found.next.cell.row}, ${text(found.next.figure)}. `, bits && sameBits(found.best.cell, found.next.cell)
        ? 'The same bits: equal weights in every seed.' : found.clear ? 'No seed of another did as well.'
          : found.best.figure.count < 2 ? 'One seed: chance is not ruled out.' : 'Too close to call: ranges overlap.');
    }
    return el('div', { className: 'card' }, title, found ? chip(found.best.cell.row) : null, body);
  }
  const rateText = f => `${number(f.median)} samples/s`;
  const timeText = f => `${number(f.median)} s in ${f.count} of ${plural(f.asked, 'seed')}`;

  // ---- charts ----
  // One plugin: what Chart.js lacks. Names at the ends of curves, whiskers and failures of bars, rules, and the pointer's place.
  const extras = {
    id: 'extras',
    beforeEvent(chart, { event }) { chart.pointer = event.x; },
    afterDatasetsDraw(chart, args, { rule, marks, names }) {
      const { ctx, chartArea: area, scales: { x, y } } = chart;
      const stroke = (colour, dash, ...points) => {
        ctx.beginPath();
        points.forEach(([px, py], i) => i ? ctx.lineTo(px, py) : ctx.moveTo(px, py));
        Object.assign(ctx, { strokeStyle: colour, lineWidth: 1.2 });
        ctx.setLineDash(dash);
        ctx.stroke();
      };
      ctx.save();
      ctx.font = '12px system-ui, sans-serif';
      if (Number.isFinite(rule)) stroke(css('text'), [3, 4], [area.left, y.getPixelForValue(rule)], [area.right, y.getPixelForValue(rule)]);
      for (const mark of marks || []) {
        const at = x.getPixelForValue(mark.x);
        stroke(css('bad'), [4, 3], [at, area.top], [at, area.bottom]);
        Object.assign(ctx, { fillStyle: css('bad'), textAlign: at > (area.left + area.right) / 2 ? 'right' : 'left', textBaseline: 'top' });
        ctx.fillText(` ${mark.text} `, at, area.top + 2);
      }
      if (chart.tooltip?.opacity && chart.options.interaction.mode === 'holds')
        stroke(css('soft'), [2, 3], [chart.pointer, area.top], [chart.pointer, area.bottom]);
      const ends = [];
      chart.data.datasets.forEach((set, i) => {
        const points = chart.getDatasetMeta(i).data;
        if (!chart.isDatasetVisible(i)) return;
        points.forEach((bar, k) => {
          const { low, high, failed } = set.data[k] || {};
          if (failed && set.type !== 'line') Object.assign(ctx, { fillStyle: set.borderColor, textAlign: 'center', textBaseline: 'bottom' });
          if (failed) ctx.fillText('×', bar.x, y.getPixelForValue(0));
          if (!(high > low)) return;
          const [a, b] = [Math.max(y.getPixelForValue(high), area.top), y.getPixelForValue(low)];
          stroke(css('text'), [], [bar.x - 3, a], [bar.x + 3, a], [bar.x, a], [bar.x, b], [bar.x - 3, b], [bar.x + 3, b]);
        });
        const end = names && set.label ? points.findLast(point => !point.skip) : null;
        if (end) ends.push({ text: set.label, colour: set.borderColor, y: end.y });
      });
      ends.sort((a, b) => a.y - b.y).forEach((end, i) => {  // none covers another
        const room = area.bottom - 13 * (ends.length - 1 - i);
        Object.assign(ctx, { fillStyle: end.colour, textAlign: 'left', textBaseline: 'middle' });
        ctx.fillText(end.text, area.right + 5, end.y = Math.min(Math.max(end.y, i ? ends[i - 1].y + 13 : area.top), room));
      });
      ctx.restore();
    },
  };
  // What each curve has at the pointer: its newest point there.
  Chart.Interaction.modes.holds = (chart, event) => {
    const at = chart.scales.x.getValueForPixel(event.x);
    return chart.data.datasets.flatMap((set, datasetIndex) => {
      const index = set.data.findLastIndex(point => point.x <= at);
      if (!set.label || index < 0 || !Number.isFinite(set.data[index].y) || !chart.isDatasetVisible(datasetIndex)) return [];
      return { element: chart.getDatasetMeta(datasetIndex).data[index], datasetIndex, index };
    });
  };
  Chart.Tooltip.positioners.pointer = (items, at) => ({ x: at.x, y: at.y });
  Chart.register(extras);

  // config(): a function, since colours change with the theme.
  function drawChart(parent, title, note, config) {
    const canvas = el('canvas', { role: 'img', ariaLabel: title });
    const entry = { canvas, config };
    const save_ = () => save(`${title}.svg`, svgOf(entry.chart), 'image/svg+xml');
    parent.append(el('figure', {}, el('figcaption', {}, el('b', {}, title), note ? el('span', {}, note) : null,
      el('button', { className: 'save', title: 'Save as SVG', onclick: save_ }, 'SVG')), el('div', { className: 'canvas' }, canvas)));
    charts.push(entry);
  }

  function redraw() {
    Object.assign(Chart.defaults, { color: css('soft'), borderColor: css('rule'), animation: false, maintainAspectRatio: false });
    Chart.defaults.font.family = 'system-ui, sans-serif';
    for (const entry of charts.filter(entry => !entry.canvas.closest('details:not([open])'))) {
      entry.chart?.destroy();
      entry.chart = new Chart(entry.canvas, entry.config());
    }
  }

  // x, y: {title, min, max, log, text}. tip: {mode, title, label}.
  function options(x, y, tip, extra = {}) {
    const scale = ({ title, tick, ...axis }) => ({ beginAtZero: axis.min === undefined, ...axis,
      title: { display: Boolean(title), text: title }, ticks: { maxRotation: 0, ...tick } });
    const scales = { x: scale(x), y: scale(y) };
    if (extra.y2) scales.y2 = scale({ ...extra.y2, position: 'right', grid: { display: false } });
    return { scales, indexAxis: extra.indexAxis || 'x', interaction: { mode: tip.mode, intersect: false, axis: tip.axis },
      layout: { padding: { right: extra.names ? 8 + 7 * Math.max(...extra.names.map(name => name.length)) : 4 } },
      plugins: { legend: { display: false }, extras: { ...extra, names: Boolean(extra.names) },
        tooltip: { position: 'pointer', callbacks: { label: tip.label, ...(tip.title ? { title: tip.title } : {}) }, itemSort: (a, b) => tip.mode === 'holds' ? b.parsed.y - a.parsed.y : 0 } } };
  }

  const logTick = value => /^[125](\.0*)?e/.test(value.toExponential()) ? String(+value.toPrecision(3)) : '';
  const seriesText = (name, point, text) => point.failed ? `${name}: ${point.failed}` : `${name}: ${text(point.y)}` +
    (point.high > point.low ? ` (${text(point.low)} to ${text(point.high)})` : '');

  // series: {row, points: {x, y, low, high}, dash, marked}. Curves are steps unless marked.
  function lineChart(parent, title, note, series, x, y, extra = {}) {
    const text = y.text || number;
    drawChart(parent, title, note, () => ({ type: 'line', data: { datasets: series.flatMap(({ row, points, dash, marked, free }) => {
      const colour = rows.includes(row) ? colourOf(row) : css('soft');
      const base = { row, borderColor: colour, backgroundColor: colour, hidden: hidden.has(row), stepped: !marked && !free, borderWidth: 2,
        pointRadius: marked || points.length === 1 ? 3 : 0, pointHoverRadius: 4, borderDash: dash || (rows.indexOf(row) < 8 ? [] : [6, 4]) };
      const edge = { ...base, borderWidth: 0, pointRadius: 0, pointHoverRadius: 0 };
      const band = points.some(point => point.high > point.low) && !marked;
      return [...(band ? [{ ...edge, data: points.map(p => ({ x: p.x, y: p.high })) },
        { ...edge, data: points.map(p => ({ x: p.x, y: p.low })), fill: '-1', backgroundColor: `${colour}26` }] : []),
      { ...base, label: row, data: points.map(({ low, high, ...p }) => marked ? { ...p, low, high } : { ...p, range: [low, high] }) }];
    }) },
    options: options({ type: 'linear', ...x }, { ...y, ...(y.log ? { type: 'logarithmic', tick: { callback: logTick, autoSkip: false } } : {}) }, { mode: 'holds',
      title: items => items.length ? `${x.title}: ${number(items[0].chart.scales.x.getValueForPixel(items[0].chart.pointer))}` : '',
      label: ({ dataset, raw }) => seriesText(dataset.label, { low: raw.range?.[0], high: raw.range?.[1], ...raw }, text) },
    { names: series.length > 1 ? series.map(({ row }) => row) : null, ...extra }) }));
  }

  // series: {name, colour, points: {y, low, high, failed}}, one point for each label.
  function barChart(parent, title, note, labels, series, x, y, extra = {}) {
    const flat = extra.indexAxis === 'y';
    drawChart(parent, title, note, () => ({ type: 'bar', data: { labels, datasets: series.map(({ name, row, colour, points }) => ({ label: name, row,
      data: points.map((point, i) => flat ? { ...point, x: point.y, y: labels[i] } : { ...point, x: labels[i] }), hidden: hidden.has(row),
      backgroundColor: css(colour), borderColor: css(colour) })) },
    options: options(x, y, { mode: 'index', axis: flat ? 'y' : 'x', label: ({ dataset, raw }) =>
      seriesText(dataset.label, flat ? { ...raw, y: raw.x } : raw, flat ? x.value || number : y.value || number) }, extra) }));
  }

  // Click: hides a row in all charts.
  function legend(parent, cells) {
    const names = rows.filter(row => cells.some(cell => cell.row === row));
    if (names.length < 2) return;
    parent.append(el('p', { className: 'legend' }, ...names.map(row => el('button', { className: `chip ${style(row)}`, ariaPressed: 'true',
      onclick: () => {
        if (!hidden.delete(row)) hidden.add(row);
        for (const button of document.querySelectorAll('.legend button')) {
          button.classList.toggle('off', hidden.has(button.textContent));
          button.ariaPressed = String(!hidden.has(button.textContent));
        }
        for (const { chart } of charts.filter(entry => entry.chart)) {
          chart.data.datasets.forEach((set, i) => { if (set.row) chart.setDatasetVisibility(i, !hidden.has(set.row)); });
          chart.update();
        }
      } }, row))));
  }

  // Returns the chart as SVG: draws it once more and writes down what is drawn.
  function svgOf(chart) {
    const { ctx } = chart;
    const [clips, out, stack] = [[], [], []];
    let [path, clip] = ['', ''];
    const at = (x, y) => {
      const p = ctx.getTransform().transformPoint({ x, y });
      return `${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
    };
    const paint = (kind, colour) => {
      const [, r, g, b, alpha] = /^rgba\((\d+), (\d+), (\d+), ([\d.]+)\)$/.exec(colour) || [];
      return `${kind}="${r ? `rgb(${r},${g},${b})` : colour}" ${kind}-opacity="${alpha || 1}"`;
    };
    const shape = (d, attributes) => out.push(`<path d="${d}" ${attributes}${clip}/>`);
    const box = (x, y, w, h) => `M${at(x, y)}L${at(x + w, y)}L${at(x + w, y + h)}L${at(x, y + h)}Z`;
    const line = () => `fill="none" ${paint('stroke', ctx.strokeStyle)} stroke-width="${ctx.lineWidth * ctx.getTransform().a}" ` +
      `stroke-dasharray="${ctx.getLineDash().map(v => v * ctx.getTransform().a).join(' ')}"`;
    const spy = {
      save: () => stack.push(clip), restore: () => { clip = stack.pop() ?? ''; }, beginPath: () => { path = ''; },
      moveTo: (x, y) => { path += `M${at(x, y)}`; }, lineTo: (x, y) => { path += `${path ? 'L' : 'M'}${at(x, y)}`; },
      closePath: () => { path += 'Z'; }, rect: (...r) => { path += box(...r); },
      arc: (x, y, r, from, to) => {
        for (let i = 0; i <= 16; ++i) spy[i || path ? 'lineTo' : 'moveTo'](x + r * Math.cos(from + (to - from) * i / 16), y + r * Math.sin(from + (to - from) * i / 16));
      },
      bezierCurveTo: (a, b, c, d, e, f) => { path += `C${at(a, b)} ${at(c, d)} ${at(e, f)}`; },
      fill: () => shape(path, paint('fill', ctx.fillStyle)), stroke: () => shape(path, line()),
      fillRect: (...r) => shape(box(...r), paint('fill', ctx.fillStyle)), strokeRect: (...r) => shape(box(...r), line()),
      clip: () => {
        clips.push(`<clipPath id="c${clips.length}"><path d="${path}"${clip}/></clipPath>`);
        clip = ` clip-path="url(#c${clips.length - 1})"`;
      },
      fillText: (text, x, y) => {
        const { a, b, c, d, e, f } = ctx.getTransform();
        const [anchor, base] = [{ center: 'middle', right: 'end', end: 'end' }[ctx.textAlign] || 'start', { middle: 'central', top: 'hanging' }[ctx.textBaseline] || 'auto'];
        out.push(`<text x="${x}" y="${y}" transform="matrix(${[a, b, c, d, e, f]})" style="font:${ctx.font.replace(/"/g, "'")}" ` +
          `text-anchor="${anchor}" dominant-baseline="${base}" ${paint('fill', ctx.fillStyle)}>${text.replace(/&/g, '&amp;').replace(/</g, '&lt;')}</text>`);
      },
    };
    for (const [name, note] of Object.entries(spy)) {
      ctx[name] = function (...values) { note(...values); return CanvasRenderingContext2D.prototype[name].apply(this, values); };
    }
    chart.draw();
    for (const name of Object.keys(spy)) delete ctx[name];
    const { width, height } = chart.canvas;
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${chart.width}" height="${chart.height}">` +
      `<defs>${clips.join('')}</defs><rect width="100%" height="100%" fill="${css('card')}"/>${out.join('\n')}</svg>\n`;
  }

  // ---- curves ----
  // Returns the median of the seeds, with lowest and highest, at each place where one of them changes, from where all have a value.
  function band(curves) {
    const all = curves.map(points => {
      const broken = points.findIndex(point => !Number.isFinite(point.y));  // a seed ends at its first value that is not finite
      return { points: broken < 0 ? points : points.slice(0, broken), end: broken < 0 ? Infinity : points[broken].x };
    }).filter(curve => curve.points.length);
    const begin = Math.max(...all.map(curve => curve.points[0].x));
    const places = [...new Set(all.flatMap(curve => curve.points.map(point => point.x)))].filter(x => x >= begin).sort((a, b) => a - b);
    return places.map(x => {
      const values = all.filter(curve => x < curve.end).map(({ points }) => points.findLast(point => point.x <= x).y);
      const f = figure({ good: values, failed: [] }, { value: v => v });
      return f && { x, y: f.median, low: f.min, high: f.max };
    }).filter(Boolean);
  }

  // One row of panels: one for each number of workers, with the same axes. The axis covers what comes after the first third.
  function panels(parent, link, title, x, y, note = '') {
    const cells = cellsOf(link);
    const shown = workersOf(cells).map(workers => ({ workers, series: cells.filter(cell => cell.workers === workers).map(cell =>
      ({ row: cell.row, points: band(cell.good.map(run => y.points(run))) })).filter(({ points }) => points.length) }))
      .filter(({ series }) => series.length);
    if (!shown.length) return;
    const all = shown.flatMap(({ series }) => series.map(({ points }) => points));
    if (all.every(points => points.length < 2)) return parent.append(soft(`${title}: each run has one evaluation; set eval-every for a curve.`));
    const late = all.flatMap(points => points.filter(point => point.x >= points.at(-1).x / 3));
    const [least, most] = [Math.min(...late.map(p => p.low), y.rule ?? Infinity), Math.max(...late.map(p => p.high), y.rule ?? -Infinity)];
    const step = 10 ** Math.floor(Math.log10(most - least || 1));
    const axis = { title: y.title, text: y.text, tick: y.tick };
    if (y.falls) {
      axis.log = least > 0 && most / least > 5;
      axis.max = Math.min(most * 2, Math.max(...all.flat().map(p => p.high)));
      axis.min = axis.log ? least * 0.95 : 0;
    } else {
      axis.min = y.zero ? 0 : Math.floor(least / step) * step;
      axis.max = Math.min(Math.ceil(most / step) * step, y.limit ?? Infinity);
    }
    const charts_ = el('div', { className: 'charts' });
    const seeds = Math.max(...cells.map(cell => cell.good.length));
    parent.append(el('h4', {}, `${title} `, el('span', { className: 'soft' }, [seeds > 1 ? 'median over seeds, band from lowest to highest' : 'one seed, no band',
      Number.isFinite(y.rule) ? 'dotted: the target' : '', note].filter(Boolean).join('; '))), charts_);
    for (const { workers, series } of shown) {
      lineChart(charts_, `${title}, ${plural(workers, 'worker')}`, '', series, { ...x, min: 0, max: Math.max(...all.flat().map(p => p.x)) }, axis, { rule: y.rule });
    }
  }

  function timeAxis(link) {
    const longest = Math.max(0, ...runs.filter(run => run.link === link && !run.failure).map(run => run.curve.at(-1)?.seconds ?? 0));
    const [unit, name] = longest < 0.5 ? [1e-3, 'ms'] : longest < 600 ? [1, 's'] : longest < 10800 ? [60, 'min'] : [3600, 'h'];
    return { title: `time since training began (${name})`, of: point => point.seconds / unit };
  }

  // ---- sections ----
  const sections = {
    results(parent) {
      const cells = cellsOf(links[0] ?? '');
      const most = cells.at(-1)?.workers;
      if (!data.compare || !cells.length) return;
      const place = `with ${plural(most, 'worker')}${links.length > 1 ? ` over ${linkName(links[0])}` : ''}`;
      document.getElementById('cards').append(card(`Most samples per second ${place}`, winner(cells, most, rate), rateText),
        ...(target === null ? [] : [card(`First at ${targetText()} ${place}`, winner(cells, most, targets[0]), timeText)]),
        card(`${metric.share ? 'Most accurate' : `Best ${metric.name}`} at the end ${place}`, winner(cells, most, final), f => metricText(f.median), true));
      parent.append(resultsTable(cells));
      const told = new Set();
      for (const first of cells) {
        const same = cells.filter(cell => !told.has(cell) && sameBits(first, cell));
        same.forEach(cell => told.add(cell));
        if (same.length > 1) parent.append(soft(`The same bits, equal final weights in every seed: ${same.map(cell => `${cell.row} with ${plural(cell.workers, 'worker')}`).join(', ')}.`));
      }
    },
    pairs(parent) {
      for (const link of links) {
        const cells = cellsOf(link).filter(cell => cell.good.some(run => run.strategy !== 'sync' && partner(run, 'sync', run.workers)));
        if (links.length > 1 && cells.length) parent.append(el('h4', {}, linkName(link)));
        parent.append(measuresTable('Beside sync', cells, [rate, final, ...targets].map(besideSync), (cell, measure, f) =>
          f.count > 1 && (measure.lower ? parseFloat(measure.text(f.max)) < measure.even : parseFloat(measure.text(f.min)) > measure.even)));
      }
    },
    curves(parent, link) {
      const share = metric.share ? { limit: metric.scale } : {};
      const value = { title: `test ${metric.name}`, text: v => v.toFixed(metric.digits) + metric.unit, tick: { callback: v => `${+v.toPrecision(6)}${metric.unit}` },
        falls: !metric.higher, rule: target === null ? undefined : target * metric.scale, ...share };
      const test = runs.some(run => !run.failure && run.curve.some(point => point.test_loss != null));
      const loss = { title: test ? 'test loss' : 'training loss', falls: true };
      const time = timeAxis(link);
      const samples = { title: 'samples trained on', of: point => point.samples };
      legend(parent, cellsOf(link));
      for (const [y, name, of] of [[value, metric.title, point => (point.test_value ?? NaN) * metric.scale],
        [loss, test ? 'Test loss' : 'Training loss', point => (test ? point.test_loss : point.train_loss) ?? NaN]]) {
        for (const [x, over] of [[time, 'time'], [samples, 'samples']])
          panels(parent, link, `${name} over ${over}`, { title: x.title }, { ...y, points: run => run.curve.map(point => ({ x: x.of(point), y: of(point) })) });
      }
    },
    speed(parent, link) {
      const cells = cellsOf(link);
      const workers = workersOf(cells);
      const frame = el('div', { className: 'charts' });
      legend(parent, cells);
      parent.append(frame);
      const bars = (title, note, measure, unit) => barChart(frame, title, note, workers.map(String), rows.filter(row => cells.some(cell => cell.row === row)).map(row =>
        ({ name: row, row, colour: `s${rows.indexOf(row) % 8}`, points: workers.map(count => {
          const cell = cells.find(cell => cell.row === row && cell.workers === count);
          const f = cell && figure(cell, measure);
          if (!cell || !f || !Number.isFinite(f.median)) return { y: 0, failed: cell ? (f ? 'never' : cell.failed[0]?.failure || 'no value') : 'not run' };
          return { y: f.median, low: f.min, high: f.count < f.asked ? Infinity : f.max };
        }) })), { title: 'workers' }, { title: unit, max: 1.05 * Math.max(...cells.map(cell => figure(cell, measure)?.max).filter(Number.isFinite)) });
      if (cells.some(cell => figure(cell, rate))) bars('Throughput', 'median; whiskers from lowest to highest; × failed', rate, 'samples/s');
      if (cells.some(cell => targets.length && figure(cell, targets[0])?.count))
        bars(`Time to ${targetText()}`, 'whisker to the top: a seed never got there; × half of them or more', targets[0], 'seconds');
      if (workers.length > 1) {
        const series = rows.map(row => ({ row, marked: true, points: cells.filter(cell => cell.row === row && figure(cell, scaling))
          .map(cell => ({ x: cell.workers, y: figure(cell, scaling).median })) })).filter(({ points }) => points.length > 1);
        const ideal = { row: 'ideal', marked: true, dash: [2, 5], points: workers.map(count => ({ x: count, y: count / workers[0] })) };
        if (series.length) lineChart(frame, `Scaling against ${plural(workers[0], 'worker')}`, 'median over seeds; dotted: ideal', [...series, ideal],
          { title: 'workers', min: workers[0], max: workers.at(-1), tick: { stepSize: 1 } }, { title: 'times its own samples/s', min: 0 });
      }
      runsChart(frame, link);
      const time = timeAxis(link);
      panels(parent, link, 'Samples per second over time', { title: time.title }, { title: 'samples/s', zero: true, points: run => run.curve.slice(1).map((point, i) =>
        ({ x: time.of(point), y: (point.samples - run.curve[i].samples) / (point.seconds - run.curve[i].seconds) })) }, 'between two evaluations');
    },
    split(parent, link) {
      const cells = cellsOf(link).filter(cell => figure(cell, split[0]));
      if (!cells.length) return;
      const frame = el('div', { className: 'charts' });
      const most = Math.max(...cells.map(cell => split.reduce((sum, part) => sum + figure(cell, part).median, 0)));
      parent.append(el('p', { className: 'legend' }, ...parts.map((part, i) => el('span', { className: `chip p${i}` }, part))), frame);
      for (const workers of workersOf(cells)) {
        const own = cells.filter(cell => cell.workers === workers);
        barChart(frame, `Parts of a step, ${plural(workers, 'worker')}`, 'a mean worker’s mean step, median over seeds', own.map(cell => cell.row), split.map((part, i) =>
          ({ name: part.name, colour: `p${i}`, points: own.map(cell => ({ y: figure(cell, part).median })) })),
        { title: 'time of a step (ms)', stacked: true, max: most, value: number }, { title: '', stacked: true }, { indexAxis: 'y' });
      }
      parent.append(el('details', {}, el('summary', {}, 'The numbers'), measuresTable('Parts of a step', cells, split)));
    },
    staleness(parent, link) {
      const counted = cellsOf(link).map(cell => {
        const counts = new Map();
        for (const run of cell.good) for (const [value, count] of Object.entries(run.staleness?.histogram || {})) counts.set(+value, (counts.get(+value) || 0) + count);
        return { cell, counts: [...counts].filter(([, count]) => count > 0).sort((a, b) => a[0] - b[0]) };
      }).filter(({ counts }) => counts.length);
      const frame = el('div', { className: 'charts' });
      parent.append(frame);
      const stale = counted.filter(({ counts }) => counts.at(-1)[0] > 0);
      for (const { cell, counts } of stale.slice(0, 12)) {
        const total = counts.reduce((sum, [, count]) => sum + count, 0);
        let seen = 0;
        const common = counts.find(([, count]) => (seen += count) >= 0.99 * total)[0];  // rarer values share a bar
        const width = Math.floor(common / 16) + 1;
        const bins = Array(Math.floor(common / width) + 1 + (counts.at(-1)[0] > common ? 1 : 0)).fill(0);
        for (const [value, count] of counts) bins[Math.min(Math.floor(value / width), bins.length - 1)] += 100 * count / total;
        const label = i => i * width > common ? `≥${i * width}` : width > 1 ? `${i * width}–${(i + 1) * width - 1}` : String(i);
        barChart(frame, `${cell.row}, ${plural(cell.workers, 'worker')}`, `mean ${number(figure(cell, costs[0]).median)}, largest ${counts.at(-1)[0]}`, bins.map((_, i) => label(i)),
          [{ name: 'updates', row: cell.row, colour: `s${rows.indexOf(cell.row) % 8}`, points: bins.map(y => ({ y })) }], { title: 'staleness (updates)' },
          { title: 'share of updates (%)', value: v => `${number(v)}%` });
      }
      const fresh = [...new Set(counted.filter(entry => !stale.includes(entry)).map(({ cell }) => cell.row))].filter(row => !stale.some(({ cell }) => cell.row === row));
      if (stale.length > 12) parent.append(soft(`${plural(stale.length - 12, 'more chart')} left out; the table of costs has them all.`));
      if (fresh.length) parent.append(soft(`Never stale, no update came between a gradient’s pull and its own: ${fresh.join(', ')}.`));
    },
    costs(parent, link) { parent.append(measuresTable('Costs', cellsOf(link), [...costs, ...targets.slice(2)])); },
    links(parent) {
      if (links.length > 1) {
        const workers = workersOf(runs).sort((a, b) => a - b);
        const map = (title, measure, text) => el('div', {}, el('h4', {}, title), table(title, [['link'], ...workers.map(count => [plural(count, 'worker')])],
          links.map(link => [linkName(link), ...workers.map(count => {
            const found = winner(cellsOf(link), count, measure);
            if (!found) return 'none';
            return { node: chip(found.best.cell.row), style: `won ${style(found.best.cell.row)}`,
              note: text(found.best.figure) + (found.next ? found.clear ? '; clear' : '; too close to call' : '') };
          })])));
        parent.append(el('div', { className: 'maps' }, map('Most samples per second', rate, rateText), target === null ? '' : map(`First at ${targetText()}`, targets[0], timeText)));
      }
      parent.append(linkModel());
      links.slice(1).forEach((link, i) => {
        const fold = el('details', { ontoggle: redraw }, el('summary', {}, `Tables and charts over ${linkName(link)}`), resultsTable(cellsOf(link)));
        for (const name of i < 2 ? ['curves', 'speed', 'split', 'costs'] : ['costs']) sections[name](fold, link);
        parent.append(fold);
      });
    },
    runs(parent) {
      if (!data.compare) return;
      const failed = runs.filter(run => run.failure);
      const who = run => [num(runs.indexOf(run) + 1), run.row, num(run.workers), num(run.seed), linkName(run.link)];
      const head = [['no.'], ['strategy'], ['workers'], ['seed'], ['link']];
      if (compare.links.length) parent.append(el('h4', {}, 'Links: asked and measured'), table('Links', [['asked'], ['measured', 'MB/s'], ['measured', 'Mbit/s'], ['round trip', 'ms'], ['how']],
        compare.links.map(link => [linkName(link.asked), num(orDash(link.bytes_per_second / 1e6)), num(orDash(link.bytes_per_second / 125e3)), num(orDash(link.round_trip_ms)), link.how])));
      if (failed.length) parent.append(el('h4', { id: 'failures' }, `Failures: ${failed.length} of ${plural(runs.length, 'run')}`),
        table('Failures', [...head, ['exit'], ['reason']], failed.map(run => [...who(run), num(run.exit_code), { text: run.failure, style: 'why' }])));
      parent.append(el('details', {}, el('summary', {}, `All ${plural(runs.length, 'run')}, in the order in which they ran`),
        table('All runs', [...head, ['seconds'], ['samples/s'], [metric.name], ['to target', 'seconds'], ['CPU', 'seconds'], ['pushed and pulled', 'MB'], ['other processes', 'cores'],
          ['weights', 'SHA-256'], ['folder']], runs.map(run => [...who(run), run.failure ? num('failed', '', 'bad') : num(orDash(run.seconds)), num(orDash(run.samples_per_second)),
          num(run.test_value == null ? '–' : metricText(run.test_value)), num(run.failure || target === null ? '–' : run.seconds_to_target === null ? 'never' : number(run.seconds_to_target)),
          num(orDash(run.cpu_seconds)), num(orDash((run.bytes_pushed + run.bytes_pulled) / 1e6)), num(orDash(run.other_cores)), run.weights_sha256?.slice(0, 8) || '–', run.out]))));
    },
    training(parent) {
      const lines = data.metrics;
      const steps = lines.slice(1).map((line, i) => line.seconds - lines[i].seconds).sort((a, b) => a - b);
      const long = Math.max(2, 8 * (steps[steps.length >> 1] || 0));
      const marks = [];
      const overTime = key => lines.flatMap((line, i) => {
        const point = { x: line.seconds, y: line[key] ?? NaN };
        return i && (line.seconds - lines[i - 1].seconds > long || line.step < lines[i - 1].step) ? [{ x: lines[i - 1].seconds + 1e-9, y: NaN }, point] : [point];
      });
      lines.forEach((line, i) => { if (i && line.step < lines[i - 1].step) marks.push({ x: line.seconds, text: `server lost, back to step ${line.step}` }); });
      const kept = [];
      for (const line of lines) {
        while (kept.length && kept.at(-1).step >= line.step) kept.pop();
        kept.push(line);
      }
      const frame = el('div', { className: 'charts' });
      const draw = (title, points, x, y, extra) => {
        const values = points.map(point => point.y).filter(Number.isFinite);
        if (!values.length) return;
        const log = y === 'training loss' && Math.min(...values) > 0 && Math.max(...values) > 5 * Math.min(...values);
        lineChart(frame, title, log ? 'logarithmic' : '', [{ row: rows[0], points, free: true }], { title: x, min: 0, max: points.at(-1).x }, { title: y, log, ...(log ? { min: Math.min(...values) * 0.95 } : {}) }, extra);
      };
      const time = 'time since training began (s)';
      draw('Training loss over time', overTime('loss'), time, 'training loss', { marks });
      draw('Training loss over samples', kept.map(line => ({ x: line.samples, y: line.loss ?? NaN })), 'samples trained on', 'training loss');
      draw('Speed over time', overTime('samples_per_second'), time, 'samples/s', { marks });
      parent.append(frame.children.length ? frame : soft('There are no metrics yet.'));
    },
    processes(parent) {
      const name = member => [`${member.role ?? '?'} ${member.rank ?? ''}`, member.host ?? '', num(member.pid ?? '–')];
      const list = key => Array.isArray(data.members?.[key]) ? data.members[key].filter(member => member && typeof member === 'object').slice(0, 300) : [];
      parent.append(table('Processes', [['process'], ['host'], ['pid'], ['device'], ['step'], ['samples'], ['CPU', 's'], ['memory', 'MiB, peak']], list('members').map(member =>
        [...name(member), member.device ?? '', num(member.step ?? '–'), num(member.samples ?? '–'), num(orDash(member.cpu_seconds)), num(orDash(member.peak_rss_mib))])),
      list('left').length ? el('h4', {}, 'Processes that left') : '',
      table('Processes that left', [['process'], ['host'], ['pid'], ['at', 's'], ['step'], ['reason']], list('left').map(member =>
        [...name(member), num(orDash(member.at_seconds)), num(member.step ?? '–'), { text: member.reason ?? '', style: 'why' }])));
      if (!parent.querySelector('table')) parent.append(soft('There is no members.json.'));
    },
  };

  // Every run in its order, failed ones too, with what else the machine did.
  function runsChart(parent, link) {
    const own = runs.filter(run => run.link === link);
    if (!own.length) return;
    const load = own.map(run => ({ x: runs.indexOf(run) + 1, y: run.other_cores ?? NaN }));
    const known = load.some(point => Number.isFinite(point.y));
    drawChart(parent, 'Every run, in order', `samples/s; × failed${known ? '; bars: cores that other processes used' : ''}`, () => ({ data: { datasets: [
      ...rows.map(row => ({ type: 'scatter', label: row, row, hidden: hidden.has(row), backgroundColor: colourOf(row), borderColor: colourOf(row),
        pointStyle: ({ raw }) => raw?.run.failure ? 'crossRot' : 'circle', pointRadius: 4,
        data: own.filter(run => run.row === row).map(run => ({ x: runs.indexOf(run) + 1, y: run.failure ? 0 : run.samples_per_second, run })) })),
      ...(known ? [{ type: 'bar', label: 'other processes', yAxisID: 'y2', data: load, backgroundColor: `${css('soft')}55` }] : [])] },
    options: options({ type: 'linear', title: 'run', min: 0, max: runs.length + 1 }, { title: 'samples/s', min: 0 }, { mode: 'x', title: items => `run ${items[0]?.raw.x}`,
      label: ({ dataset, raw }) => !raw.run ? `other processes: ${orDash(raw.y)} cores` : `${dataset.label}, ${plural(raw.run.workers, 'worker')}, seed ${raw.run.seed}: ${raw.run.failure || `${orDash(raw.y)} samples/s`}` },
    known ? { y2: { title: 'cores', min: 0, max: compare.cores || undefined } } : {}) }));
  }

  // The lower bound of a step's communication, with G gradient bytes, n workers, s servers and B bytes/s each way, beside what was measured.
  function linkModel() {
    const bytes = 4 * (compare.model_parameters || 0);
    const word = (ring, server) => Math.abs(ring - server) <= 0.05 * Math.max(ring, server) ? 'even' : ring < server ? 'all-reduce' : 'server';
    const body = compare.links.filter(link => bytes && link.bytes_per_second > 0).flatMap(link => {
      const cells = cellsOf(linkName(link.asked) === 'loopback' ? '' : link.asked);
      return workersOf(cells).filter(n => n > 1).map(n => {
        const one = (ring, name) => {
          const all = cells.filter(cell => cell.workers === n && cell.good.length && cell.row.startsWith('allreduce') === ring);
          return all.find(cell => cell.row === name) || all[0];
        };
        const [ring, server] = [one(true, 'allreduce:ring'), one(false, 'sync')];
        const s = Math.max(server?.servers ?? 1, 1);
        const B = link.bytes_per_second;
        const [byRing, byServer] = [2 * (n - 1) * bytes / (n * B), Math.max(bytes / B, n * bytes / (s * B))];
        const seconds = cell => cell ? num(orDash(split.slice(1).reduce((sum, part) => sum + (figure(cell, part)?.median ?? NaN), 0)), cell.row) : num('–');
        const seen = ring && server ? word(1 / figure(ring, rate)?.median, 1 / figure(server, rate)?.median) : '–';
        return [{ text: linkName(link.asked), note: `${number(B / 1e6)} MB/s, ${orDash(link.round_trip_ms)} ms` }, num(n), num(s), num(number(byRing * 1e3)),
          num(number(byServer * 1e3)), word(byRing, byServer), seconds(ring), seconds(server), { text: seen, note: seen !== '–' && seen !== word(byRing, byServer) ? 'not as predicted' : '' }];
      });
    });
    if (!body.length) return '';
    return el('div', {}, el('h4', {}, 'The textbook model beside the measurement'), el('p', {}, `With G gradient bytes (here ${number(bytes / 1e6)} MB), n workers, s servers and B bytes/s ` +
      'of the measured link, each way, one step needs at least 2(n−1)G/(nB) with a ring all-reduce and max(G/B, nG/(sB)) with servers. The model has no latency, no computing, and nothing ' +
      'that hides communication. Measured: push, wait and pull of a mean step; winner: the one with more samples/s.'),
    table('Model and measurement', [['link', 'measured, round trip'], ['workers'], ['servers'], ['ring', 'predicted, ms'], ['server', 'predicted, ms'], ['winner', 'predicted'],
      ['ring', 'measured, ms'], ['server', 'measured, ms'], ['winner', 'measured']], body));
  }

  document.documentElement.classList.add('scripted');
  if (data.compare) document.getElementById('text').open = false;
  for (const over of document.querySelectorAll('.over')) over.textContent = links.length > 1 ? ` Over ${linkName(links[0])}.` : '';
  for (const place of document.querySelectorAll('[data-part]')) {
    sections[place.dataset.part](place, links[0] ?? '');
    if (!place.querySelector('figure, table, p') && place.closest('section.js')) place.closest('section').remove();
  }
  document.querySelector('nav').append(...[...document.querySelectorAll('section')].map(section => el('a', { href: `#${section.id}` }, section.querySelector('h2').textContent)));
  redraw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
})();
