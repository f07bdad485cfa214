// Draws a report from its data: tables, charts by Chart.js, and both as files for a paper. Asks nothing of the network.
(() => {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const { metric, rows } = data;  // rows: names of strategies (and codecs), in the order of their colours
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
      curve.push({ seconds: m.test_seconds ?? m.seconds, samples: m.test_samples, step: m.test_step, test_loss: m.test_loss, train_loss: m.loss,
        test_value: m.heads?.[0]?.value ?? m.test_accuracy });
    }
    return { ...data.summary, strategy: rows[0], workers: data.workers, seed: 0, failure: null, curve };
  }

  // ---- text; what comes from outside becomes text nodes, never markup ----
  const plural = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`;
  const decimalsFor = most => !Number.isFinite(most) || most >= 100 || most <= 0 ? 0 : Math.min(Math.max(2 - Math.floor(Math.log10(most)), 0), 5);
  const fixed = (value, digits) => value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const number = value => value !== 0 && Math.abs(value) < 1e-4 ? value.toExponential(1) : fixed(value, decimalsFor(Math.abs(value)));
  const orDash = value => Number.isFinite(value) ? number(value) : '–';
  const metricText = value => (value * metric.scale).toFixed(metric.digits) + metric.unit;
  const targetText = () => `${+(target * metric.scale).toPrecision(6)}${metric.unit} test ${metric.name}`;
  const linkName = link => link || 'loopback';
  const style = row => `s${rows.indexOf(row) % 8}`;
  const dashed = row => rows.indexOf(row) >= 8;  // further rows have the colours of the first again
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  function el(tag, properties = {}, ...children) {
    const out = Object.assign(document.createElement(tag), properties);
    out.append(...children.filter(child => child != null));
    return out;
  }
  const chip = row => el('span', { className: `chip ${style(row)} ${dashed(row) ? 'again' : ''}` }, row);
  const soft = text => el('p', { className: 'soft' }, text);
  const fold = (title, ...children) => el('details', { ontoggle: redraw }, el('summary', {}, title), ...children);
  const save = (name, text, type) => el('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name.replace(/[^\w.-]+/g, '-') }).click();
  const saveButton = (text, title, onclick) => el('button', { className: 'save', title, onclick }, text);

  // ---- figures: a measure over the seeds of a cell ----
  // Returns the cells (row, workers, seeds that succeeded and failed) of a link by workers, then by row.
  function cellsOf(link) {
    const cells = new Map();
    for (const run of runs.filter(run => run.link === link)) {
      const key = run.workers * 1000 + rows.indexOf(run.row);
      if (!cells.has(key)) cells.set(key, { row: run.row, workers: run.workers, servers: run.servers, tuned: run.tuned, good: [], failed: [] });
      cells.get(key)[run.failure ? 'failed' : 'good'].push(run);
    }
    return [...cells].sort((a, b) => a[0] - b[0]).map(([, cell]) => cell);
  }
  const workersOf = cells => [...new Set(cells.map(cell => cell.workers))];

  // In a measure to the target, a run without a value counts as later than all others.
  function figure(cell, measure) {
    const there = cell.good.map(measure.value).filter(Number.isFinite).sort((a, b) => a - b);
    const asked = measure.target ? cell.good.length + cell.failed.length : there.length;
    if (!there.length && !(measure.target && cell.good.length)) return null;
    const all = [...there, ...Array(asked - there.length).fill(Infinity)], half = all.length >> 1;
    const median = all.length % 2 ? all[half] : (all[half - 1] + all[half]) / 2;
    return { median, min: there[0] ?? Infinity, max: there.at(-1) ?? Infinity, count: there.length, asked };
  }

  // Clear: two seeds or more, all better than every seed of the others.
  function winner(cells, workers, measure) {
    const sign = measure.lower ? 1 : -1;
    const all = cells.filter(cell => cell.workers === workers).map(cell => ({ cell, f: figure(cell, measure) }))
      .filter(({ f }) => f && Number.isFinite(f.median)).sort((a, b) => sign * (a.f.median - b.f.median));
    if (!all.length) return null;
    const [best, next] = all;
    const clear = next && best.f.count > 1 && best.f.count === best.f.asked &&
      all.slice(1).every(({ f }) => measure.lower ? best.f.max < f.min : best.f.min > f.max);
    return { best, next, clear };
  }

  function sameBits(a, b) {
    const pairs = a.good.flatMap(run => b.good.filter(other => other.seed === run.seed && run.weights_sha256).map(other => [run, other]));
    return pairs.length > 0 && pairs.every(([run, other]) => run.weights_sha256 === other.weights_sha256);
  }

  const partner = (run, strategy, workers) => runs.find(other => !other.failure && other.strategy === strategy && other.workers === workers &&
    other.seed === run.seed && other.link === run.link && other.codec === run.codec);

  const fewest = Math.min(...runs.map(run => run.workers));
  const rate = { name: 'samples/s', unit: 'median, range', value: run => run.samples_per_second };
  const scaling = { name: 'scaling', unit: `× own ${plural(fewest, 'worker')}`, plain: true,
    value: run => run.samples_per_second / partner(run, run.strategy, fewest)?.samples_per_second };
  const final = { name: `final ${metric.name}`, unit: 'median, range', value: run => run.test_value ?? NaN, lower: !metric.higher, text: metricText };
  const toTarget = (name, unit, key, scale = 1) => ({ name, unit, value: run => (run[key] ?? NaN) / scale, lower: true, target: true });
  const targets = target === null ? [] : [toTarget('time to target', 'seconds', 'seconds_to_target'), toTarget('samples to target', '', 'samples_to_target'),
    toTarget('CPU to target', 'seconds', 'cpu_seconds_to_target'), toTarget('bytes to target', 'MB', 'bytes_to_target', 1e6)];
  const besideSync = measure => ({ ...measure, target: false, unit: measure.text ? 'minus sync' : '÷ sync', even: measure.text ? 0 : 1,
    text: measure.text || (value => value.toFixed(2)), value: run => {
      const sync = partner(run, 'sync', run.workers);
      return !sync ? NaN : measure.text ? measure.value(run) - measure.value(sync) : measure.value(run) / measure.value(sync);
    } });
  const cost = (name, unit, value) => ({ name, unit, value, plain: true });
  const split = ['compute', 'push', 'wait', 'pull'].map(part => cost(part, 'ms', run => run.split ? run.split[part] * 1e3 : NaN));
  const roles = [...new Set(runs.flatMap(run => Object.keys(run.cpu_seconds_per_role || {})))].sort();
  const costs = [cost('staleness', 'mean', run => run.staleness?.mean ?? NaN), cost('staleness', 'largest', run => run.staleness?.max ?? NaN),
    cost('pushed', 'MB per step', run => run.bytes_pushed / run.steps / 1e6), cost('pulled', 'MB per step', run => run.bytes_pulled / run.steps / 1e6),
    cost('pushes dropped', '', run => run.pushes_dropped || NaN), ...roles.map(role => cost(`CPU ${role}s`, 'seconds', run => run.cpu_seconds_per_role?.[role] ?? NaN)),
    ...roles.map(role => cost(`peak ${role}`, 'MiB', run => run.peak_mib?.[role] ?? NaN)), cost('other processes', 'cores', run => run.other_cores ?? NaN)];

  // ---- tables ----
  // head: "name|unit in small letters"; a cell: a text, or {text | node, note, style}. A row of one cell heads a group.
  function table(about, head, body) {
    if (!body.length) return '';
    const entry = (tag, cell) => {
      const { text, node, note, style: name } = typeof cell === 'object' ? cell : { text: cell };
      return el(tag, { className: name || '' }, node || text, note ? el('small', {}, note) : null);
    };
    const tr = (cells, tag) => el('tr', { className: cells.length < head.length ? 'group' : '' }, ...cells.map((cell, i) => entry(i ? tag : 'th', cell)),
      cells.length < head.length ? el('td', { colSpan: head.length - cells.length }) : null);
    const names = head.map((name, i) => ({ text: name.split('|')[0], note: name.split('|')[1], style: body.at(-1)[i].style?.startsWith('n') ? 'n' : '' }));
    const out = el('table', {}, el('thead', {}, tr(names, 'th')), el('tbody', {}, ...body.map(cells => tr(cells, 'td'))));
    return el('div', {}, el('div', { className: 'scroll', tabIndex: 0, role: 'region', ariaLabel: about }, out),
      saveButton('LaTeX', 'Save as a LaTeX table', () => save(`${about}.tex`, latexOf(out), 'text/x-tex')));
  }

  function latexOf({ rows: lines }) {
    const marks = { '–': '--', '−': '$-$', '×': '$\\times$', '÷': '$\\div$', '·': '$\\cdot$', '\\': '\\textbackslash{}', '~': '\\~{}', '^': '\\^{}' };
    const group = ({ cells: [first, { colSpan }] }, text) => colSpan > 1 ? `\\multicolumn{${colSpan + 1}}{l}{${first.textContent}} \\\\` : text;
    const text = lines => [...lines].map(line => group(line, [...line.cells].map(cell => {
      const note = cell.querySelector('small')?.textContent;
      const plain = note ? `${cell.textContent.slice(0, -note.length)} (${note})` : cell.textContent;
      const escaped = plain.replace(/[&%$#_{}~^\\–−×÷·]/g, c => marks[c] || `\\${c}`);
      return cell.classList.contains('best') ? `\\textbf{${escaped}}` : escaped;
    }).join(' & ') + ' \\\\')).join('\n');
    const columns = [...lines[0].cells].map(cell => cell.className === 'n' ? 'r' : 'l').join('');
    return `\\begin{tabular}{${columns}}\n\\hline\n${text([lines[0]])}\n\\hline\n${text([...lines].slice(1))}\n\\hline\n\\end{tabular}\n`;
  }

  const num = (text, note, more) => ({ text: String(text), note, style: `n${more ? ` ${more}` : ''}` });

  // Leaves out measures without any value.
  function measuresTable(about, cells, measures, bold = () => false) {
    const head = ['strategy', 'runs'];
    const body = cells.map(({ row, tuned, good, failed }) => [{ node: chip(row), note: tuned ? `tuned: ${tuned}` : '' },
      failed.length ? num(`${failed.length} of ${good.length + failed.length}`, 'failed', 'bad') : num(good.length)]);
    for (const measure of measures) {
      const figures = cells.map(cell => figure(cell, measure));
      if (!figures.some(Boolean)) continue;
      const digits = decimalsFor(Math.max(0, ...figures.filter(f => f?.count).map(f => Math.abs(f.max))));
      const text = value => !Number.isFinite(value) ? 'never' : measure.text ? measure.text(value) : fixed(value, digits);
      head.push(measure.unit ? `${measure.name}|${measure.unit}` : measure.name);
      figures.forEach((f, i) => {
        if (!f) return body[i].push(num('–'));
        const [low, high, less] = [text(f.min), f.count < f.asked ? 'never' : text(f.max), f.count < f.asked];
        const note = [low === high ? '' : low + (low < '0' ? ' to ' : '–') + high, less ? `${f.count} of ${plural(f.asked, 'seed')}` : ''];
        body[i].push(num(text(f.median), note.filter(Boolean).join('; '), bold(cells[i], measure, f) ? 'best' : ''));
      });
    }
    return table(about, head, cells.flatMap((cell, i) => cell.workers === cells[i - 1]?.workers ? [body[i]] : [[plural(cell.workers, 'worker')], body[i]]));
  }

  const resultsTable = cells => measuresTable('Results', cells, [rate, scaling, final, ...targets], (cell, measure) => {
    const found = measure.plain ? null : winner(cells, cell.workers, measure);
    return found?.clear && found.best.cell === cell;
  });

  function card(title, found, text, bits) {
    if (!found) return el('div', { className: 'card' }, title, el('p', {}, 'none'));
    const verdict = bits && found.next && sameBits(found.best.cell, found.next.cell) ? 'The same bits: equal weights in every seed.'
      : found.clear ? 'No seed of another did as well.' : found.best.f.count < 2 ? 'One seed: chance is not ruled out.' : 'Too close to call: ranges overlap.';
    return el('div', { className: 'card' }, title, chip(found.best.cell.row), el('p', {}, el('b', {}, text(found.best.f)),
      found.next ? `; next: ${found.next.cell.row}, ${text(found.next.f)}. ${verdict}` : ''));
  }
  const rateText = f => `${number(f.median)} samples/s`;
  const timeText = f => `${number(f.median)} s in ${f.count} of ${plural(f.asked, 'seed')}`;

  // ---- charts ----
  // Additions to Chart.js: names at the ends of curves, whiskers and failures of bars, rules, and the pointer's place.
  const extras = {
    id: 'extras', beforeEvent(chart, { event }) { chart.pointer = event.x; },
    afterDatasetsDraw(chart, args, { rule, marks, names }) {
      const { ctx, chartArea: area, scales: { x, y } } = chart;
      const line = (colour, dash, ...points) => {
        Object.assign(ctx, { strokeStyle: colour, lineWidth: 1.2 });
        ctx.setLineDash(dash);
        ctx.beginPath();
        points.forEach(([px, py], i) => i ? ctx.lineTo(px, py) : ctx.moveTo(px, py));
        ctx.stroke();
      };
      const write = (text, px, py, fillStyle, textAlign, textBaseline) => {
        Object.assign(ctx, { fillStyle, textAlign, textBaseline });
        ctx.fillText(text, px, py);
      };
      ctx.save();
      ctx.font = '12px system-ui, sans-serif';
      if (Number.isFinite(rule)) line(css('text'), [3, 4], [area.left, y.getPixelForValue(rule)], [area.right, y.getPixelForValue(rule)]);
      for (const mark of marks || []) {
        const at = x.getPixelForValue(mark.x);
        line(css('bad'), [4, 3], [at, area.top], [at, area.bottom]);
        write(` ${mark.text} `, at, area.top + 2, css('bad'), at > (area.left + area.right) / 2 ? 'right' : 'left', 'top');
      }
      if (chart.tooltip?.opacity && chart.options.interaction.mode === 'holds') line(css('soft'), [2, 3], [chart.pointer, area.top], [chart.pointer, area.bottom]);
      const ends = [];
      chart.data.datasets.filter((set, i) => chart.isDatasetVisible(i)).forEach(set => {
        const points = chart.getDatasetMeta(chart.data.datasets.indexOf(set)).data;
        points.forEach((bar, k) => {
          const { low, high, failed } = set.data[k] || {};
          if (failed) write('×', bar.x, y.getPixelForValue(0), set.borderColor, 'center', 'bottom');
          if (!(high > low)) return;
          const [a, b] = [Math.max(y.getPixelForValue(high), area.top), y.getPixelForValue(low)];
          line(css('text'), [], [bar.x - 3, a], [bar.x + 3, a], [bar.x, a], [bar.x, b], [bar.x - 3, b], [bar.x + 3, b]);
        });
        const end = names && set.label ? points.findLast(point => !point.skip) : null;
        if (end) ends.push({ text: set.label, colour: set.borderColor, y: end.y });
      });
      ends.sort((a, b) => a.y - b.y).forEach((end, i) => {  // none covers another
        end.y = Math.min(Math.max(end.y, i ? ends[i - 1].y + 13 : area.top), area.bottom - 13 * (ends.length - 1 - i));
        write(end.text, area.right + 5, end.y, end.colour, 'left', 'middle');
      });
      ctx.restore();
    },
  };
  Chart.register(extras);
  Chart.Tooltip.positioners.pointer = (items, at) => ({ x: at.x, y: at.y });
  // The newest point of each curve at the pointer.
  Chart.Interaction.modes.holds = (chart, event) => chart.data.datasets.flatMap((set, datasetIndex) => {
    const index = set.data.findLastIndex(point => point.x <= chart.scales.x.getValueForPixel(event.x));
    if (!set.label || !Number.isFinite(set.data[index]?.y) || !chart.isDatasetVisible(datasetIndex)) return [];
    return { element: chart.getDatasetMeta(datasetIndex).data[index], datasetIndex, index };
  });

  // config: a function, since colours change with the theme.
  function drawChart(parent, title, note, config, wide = '') {
    const entry = { config, canvas: el('canvas', { role: 'img', ariaLabel: title }) };
    parent.append(el('figure', { className: wide }, el('figcaption', {}, el('b', {}, title), el('span', {}, note),
      saveButton('SVG', 'Save as SVG', () => save(`${title}.svg`, svgOf(entry.chart), 'image/svg+xml'))), el('div', { className: 'canvas' }, entry.canvas)));
    charts.push(entry);
  }

  // Draws all charts but those in closed folds.
  function redraw() {
    Object.assign(Chart.defaults, { color: css('soft'), borderColor: css('rule'), animation: false, maintainAspectRatio: false });
    Chart.defaults.font.family = 'system-ui, sans-serif';
    for (const entry of charts.filter(entry => !entry.canvas.closest('details:not([open])'))) {
      entry.chart?.destroy();
      entry.chart = new Chart(entry.canvas, entry.config());
    }
  }

  // x, y: options of Chart.js for an axis, with its title and the options of its ticks. extra: of the plugin above, and y2, indexAxis.
  function options(x, y, { mode, axis, title, label }, extra = {}) {
    const scale = ({ title, tick, text, ...axis }) => ({ beginAtZero: axis.min === undefined, grace: axis.max === undefined ? '5%' : 0, ...axis, title: { display: Boolean(title), text: title },
      ticks: { maxRotation: 0, includeBounds: false, ...tick } });
    const scales = { x: scale(x), y: scale(y), ...(extra.y2 ? { y2: scale({ ...extra.y2, position: 'right', grid: { display: false } }) } : {}) };
    const room = extra.names ? 8 + 7 * Math.max(...extra.names.map(name => name.length)) : 4;
    return { scales, indexAxis: extra.indexAxis || 'x', interaction: { mode, intersect: false, axis }, layout: { padding: { right: room } },
      plugins: { legend: { display: false }, extras: { rule: extra.rule, marks: extra.marks, names: Boolean(extra.names) }, tooltip: { position: 'pointer',
        callbacks: { label, ...(title ? { title } : {}) }, itemSort: (a, b) => mode === 'holds' ? b.parsed.y - a.parsed.y : 0 } } };
  }

  const logTick = value => /^[125](\.0*)?e/.test(value.toExponential()) ? String(+value.toPrecision(3)) : '';
  const pointText = (name, { y, failed, range: [low, high] = [] }, text = number) =>
    `${name}: ${failed || text(y) + (high > low ? ` (${text(low)} to ${text(high)})` : '')}`;

  // series: {row, points: {x, y, range}, dash, marked, free}. Curves are steps unless marked or free.
  function lineChart(parent, title, note, series, x, y, extra = {}) {
    const dataset = ({ row, points, dash, marked, free }) => {
      const colour = css(rows.includes(row) ? style(row) : 'soft');
      const base = { row, borderColor: colour, backgroundColor: colour, hidden: hidden.has(row), stepped: !marked && !free, borderWidth: 2,
        pointRadius: marked || points.length === 1 ? 3 : 0, borderDash: dash || (dashed(row) ? [6, 4] : []) };
      const edge = end => ({ ...base, borderWidth: 0, pointRadius: 0, pointHoverRadius: 0, data: points.map(({ x, range }) => ({ x, y: range[end] })) });
      const band = points.some(({ range }) => range?.[1] > range?.[0]) ? [edge(1), { ...edge(0), fill: '-1', backgroundColor: `${colour}26` }] : [];
      return [...band, { ...base, label: row, data: points }];
    };
    const log = y.log ? { type: 'logarithmic', tick: { callback: logTick, autoSkip: false } } : {};
    drawChart(parent, title, note, () => ({ type: 'line', data: { datasets: series.flatMap(dataset) }, options: options({ type: 'linear', ...x }, { ...y, ...log },
      { mode: 'holds', label: ({ dataset, raw }) => pointText(dataset.label, raw, y.text),
        title: ([item]) => item ? `${x.title}: ${number(item.chart.scales.x.getValueForPixel(item.chart.pointer))}` : '' },
      { names: series.length > 1 ? series.map(({ row }) => row) : null, ...extra }) }));
  }

  // series: {name, row, colour, points: {y, range, failed}}, one point for each label.
  function barChart(parent, title, note, labels, series, x, y, extra = {}) {
    const flat = extra.indexAxis === 'y';
    const place = (point, label) => ({ low: point.range?.[0], high: point.range?.[1], point, ...(flat ? { x: point.y, y: label } : { x: label, y: point.y }), failed: point.failed });
    drawChart(parent, title, note, () => ({ type: 'bar', data: { labels, datasets: series.map(({ name, row, colour, points }) => ({ label: name, row, hidden: hidden.has(row),
      backgroundColor: css(colour), borderColor: css(colour), data: points.map((point, i) => place(point, labels[i])) })) },
    options: options(x, y, { mode: 'index', axis: flat ? 'y' : 'x', label: ({ dataset, raw }) => pointText(dataset.label, raw.point, (flat ? x : y).text) }, extra) }));
  }

  // Click: hides a row in all charts.
  function legend(parent, cells) {
    const names = rows.filter(row => cells.some(cell => cell.row === row));
    const onclick = ({ currentTarget: { textContent: row } }) => {
      if (!hidden.delete(row)) hidden.add(row);
      for (const button of document.querySelectorAll('.legend button')) {
        button.classList.toggle('off', hidden.has(button.textContent));
        button.ariaPressed = String(!hidden.has(button.textContent));
      }
      for (const { chart } of charts.filter(entry => entry.chart)) {
        chart.data.datasets.forEach((set, i) => { if (set.row) chart.setDatasetVisibility(i, !hidden.has(set.row)); });
        chart.update();
      }
    };
    if (names.length > 1) parent.append(el('p', { className: 'legend' }, ...names.map(row => Object.assign(el('button', { onclick, ariaPressed: 'true' }, row), { className: chip(row).className }))));
  }

  // Returns the chart as SVG: draws it once more and writes down what is drawn.
  function svgOf(chart) {
    const { ctx } = chart, clips = [], out = [], stack = [];
    let path = '', clip = '';
    const at = (x, y) => (p => `${p.x.toFixed(1)} ${p.y.toFixed(1)}`)(ctx.getTransform().transformPoint({ x, y }));
    const paint = (kind, colour) => {
      const [, r, g, b, alpha] = /^rgba\((\d+), (\d+), (\d+), ([\d.]+)\)$/.exec(colour) || [];
      return `${kind}="${r ? `rgb(${r},${g},${b})` : colour}" ${kind}-opacity="${alpha || 1}"`;
    };
    const shape = (d, attributes) => out.push(`<path d="${d}" ${attributes}${clip}/>`);
    const box = (x, y, w, h) => `M${at(x, y)}L${at(x + w, y)}L${at(x + w, y + h)}L${at(x, y + h)}Z`;
    const scaled = value => value * ctx.getTransform().a;
    const line = () => `fill="none" ${paint('stroke', ctx.strokeStyle)} stroke-width="${scaled(ctx.lineWidth)}" stroke-dasharray="${ctx.getLineDash().map(scaled).join(' ')}"`;
    const spy = {
      save: () => stack.push(clip), restore: () => { clip = stack.pop() ?? ''; }, beginPath: () => { path = ''; }, closePath: () => { path += 'Z'; },
      moveTo: (x, y) => { path += `M${at(x, y)}`; }, lineTo: (x, y) => { path += `${path ? 'L' : 'M'}${at(x, y)}`; }, rect: (...r) => { path += box(...r); },
      arc: (x, y, r, from, to) => { for (let i = 0; i <= 16; ++i) spy.lineTo(x + r * Math.cos(from + (to - from) * i / 16), y + r * Math.sin(from + (to - from) * i / 16)); },
      fill: () => shape(path, paint('fill', ctx.fillStyle)), stroke: () => shape(path, line()),
      clip: () => {
        clips.push(`<clipPath id="c${clips.length}"><path d="${path}"${clip}/></clipPath>`);
        clip = ` clip-path="url(#c${clips.length - 1})"`;
      },
      fillText: (text, x, y) => {
        const { a, b, c, d, e, f } = ctx.getTransform();
        const anchor = { center: 'middle', right: 'end', end: 'end' }[ctx.textAlign] || 'start', base = { middle: 'central', top: 'hanging' }[ctx.textBaseline] || 'auto';
        out.push(`<text x="${x}" y="${y}" transform="matrix(${[a, b, c, d, e, f]})" style="font:${ctx.font.replace(/"/g, "'")}" text-anchor="${anchor}" ` +
          `dominant-baseline="${base}" ${paint('fill', ctx.fillStyle)}>${text.replace(/&/g, '&amp;').replace(/</g, '&lt;')}</text>`);
      },
    };
    for (const [name, note] of Object.entries(spy)) {
      ctx[name] = (...values) => { note(...values); if (values[0] !== spy) CanvasRenderingContext2D.prototype[name].apply(ctx, values); };
    }
    const { Path2D } = window, forget = () => chart.getSortedVisibleDatasetMetas().forEach(({ dataset }) => { if (dataset) dataset._path = null; });
    window.Path2D = function () { spy.beginPath(); return spy; };  // Chart.js keeps the path of a line
    forget();
    chart.draw();
    forget();
    window.Path2D = Path2D;
    for (const name of Object.keys(spy)) delete ctx[name];
    chart.draw();
    const { width, height } = chart.canvas;
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${chart.width}" height="${chart.height}">` +
      `<defs>${clips.join('')}</defs><rect width="100%" height="100%" fill="${css('card')}"/>${out.join('\n')}</svg>\n`;
  }

  // ---- curves ----
  // Returns the median of the seeds, with its range, at each place where one of them changes, from where all have a value.
  function band(curves) {
    const all = curves.map(points => {
      const broken = points.findIndex(point => !Number.isFinite(point.y));  // a seed ends at its first value that is not finite
      return { points: broken < 0 ? points : points.slice(0, broken), end: points[broken]?.x ?? Infinity };
    }).filter(({ points }) => points.length);
    const begin = Math.max(...all.map(({ points }) => points[0].x));
    return [...new Set(all.flatMap(({ points }) => points.map(({ x }) => x)))].filter(x => x >= begin).sort((a, b) => a - b).flatMap(x => {
      const good = all.filter(({ end }) => x < end).map(({ points }) => points.findLast(point => point.x <= x).y);
      const f = figure({ good, failed: [] }, { value: y => y });
      return f ? [{ x, y: f.median, range: [f.min, f.max] }] : [];
    });
  }

  // A row of panels, one for each number of workers, with the same axes. The axis covers what comes after the first third.
  function panels(parent, link, title, x, y, note) {
    const cells = cellsOf(link);
    const shown = workersOf(cells).map(workers => ({ workers, series: cells.filter(cell => cell.workers === workers)
      .map(cell => ({ row: cell.row, points: band(cell.good.map(y.points)) })).filter(({ points }) => points.length) })).filter(({ series }) => series.length);
    const all = shown.flatMap(({ series }) => series.map(({ points }) => points));
    if (!all.length) return;
    if (all.every(points => points.length < 2)) return parent.append(soft(`${title}: each run has one evaluation; set eval-every for a curve.`));
    const late = all.flatMap(points => points.filter(point => point.x >= points.at(-1).x / 3)).flatMap(({ range }) => range).concat(y.rule ?? []);
    const least = Math.min(...late), most = Math.max(...late), step = 10 ** Math.floor(Math.log10(most - least || 1));
    const log = y.falls && least > 0 && most / least > 5;
    const min = log ? least * 0.95 : y.falls || y.zero ? 0 : Math.floor(least / step) * step;
    const max = y.falls ? Math.min(most * 2, Math.max(...all.flat().map(({ range }) => range[1]))) : Math.min(Math.ceil(most / step) * step, y.limit ?? Infinity);
    const alone = shown.length === 1;  // then all rows share one
    const frame = alone && parent.querySelector(':scope > .alone') || el('div', { className: `charts ${alone ? 'alone' : ''}` });
    const notes = [cells.some(cell => cell.good.length > 1) ? 'median over seeds, band from lowest to highest' : 'one seed, no band', y.rule && 'dotted: the target', note].filter(Boolean).join('; ');
    parent.append(alone ? '' : el('h4', {}, `${title} `, el('span', { className: 'soft' }, notes)), frame);
    for (const { workers, series } of shown) {
      lineChart(frame, `${title}, ${plural(workers, 'worker')}`, alone ? notes : '', series, { title: x.title, min: 0, max: Math.max(...all.flat().map(point => point.x)) },
        { title: y.title, text: y.text, tick: y.tick, log, min, max }, { rule: y.rule });
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
      const cells = cellsOf(links[0] ?? ''), most = cells.at(-1)?.workers;
      if (!data.compare || !cells.length) return;
      const place = `with ${plural(most, 'worker')}${links.length > 1 ? ` over ${linkName(links[0])}` : ''}`;
      document.getElementById('cards').append(card(`Most samples per second ${place}`, winner(cells, most, rate), rateText),
        target === null ? '' : card(`First at ${targetText()} ${place}`, winner(cells, most, targets[0]), timeText),
        card(`${metric.share ? 'Most accurate' : `Best ${metric.name}`} at the end ${place}`, winner(cells, most, final), f => metricText(f.median), true));
      parent.append(resultsTable(cells));
      const told = new Set();
      for (const first of cells) {
        const same = cells.filter(cell => !told.has(cell) && sameBits(first, cell));
        same.forEach(cell => told.add(cell));
        const names = same.map(cell => `${cell.row} with ${plural(cell.workers, 'worker')}`).join(', ');
        if (same.length > 1) parent.append(soft(`The same bits, equal final weights in every seed: ${names}.`));
      }
    },
    pairs(parent) {
      for (const link of links) {
        const cells = cellsOf(link).filter(cell => cell.good.some(run => run.strategy !== 'sync' && partner(run, 'sync', run.workers)));
        const bold = (cell, { lower, even, text }, f) => f.count > 1 && (lower ? parseFloat(text(f.max)) < even : parseFloat(text(f.min)) > even);
        if (links.length > 1 && cells.length) parent.append(el('h4', {}, linkName(link)));
        parent.append(measuresTable('Beside sync', cells, [rate, final, ...targets].map(besideSync), bold));
      }
    },
    curves(parent, link) {
      const test = runs.some(run => !run.failure && run.curve.some(point => point.test_loss != null));
      const value = { title: `test ${metric.name}`, text: v => v.toFixed(metric.digits) + metric.unit, tick: { callback: v => `${+v.toPrecision(6)}${metric.unit}` },
        falls: !metric.higher, rule: target === null ? undefined : target * metric.scale, limit: metric.share ? metric.scale : undefined };
      legend(parent, cellsOf(link));
      for (const [y, name, of] of [[value, metric.title, point => (point.test_value ?? NaN) * metric.scale],
        [{ title: test ? 'test loss' : 'training loss', falls: true }, test ? 'Test loss' : 'Training loss', point => (test ? point.test_loss : point.train_loss) ?? NaN]]) {
        for (const [x, over] of [[timeAxis(link), 'time'], [{ title: 'samples trained on', of: point => point.samples }, 'samples']])
          panels(parent, link, `${name} over ${over}`, x, { ...y, points: run => run.curve.map(point => ({ x: x.of(point), y: of(point) })) });
      }
    },
    speed(parent, link) {
      const cells = cellsOf(link), workers = workersOf(cells), frame = el('div', { className: 'charts' }), time = timeAxis(link);
      legend(parent, cells);
      parent.append(frame);
      const bars = (title, note, measure, unit) => {
        const ends = cells.map(cell => figure(cell, measure)?.max).filter(Number.isFinite);
        const point = cell => {
          const f = cell && figure(cell, measure);
          if (!f || !Number.isFinite(f.median)) return { y: 0, failed: !cell ? 'not run' : f ? 'never' : cell.failed[0]?.failure || 'no value' };
          return { y: f.median, range: [f.min, f.count < f.asked ? Infinity : f.max] };
        };
        const series = rows.map(row => ({ name: row, row, colour: style(row), points: workers.map(n => point(cells.find(cell => cell.row === row && cell.workers === n))) }));
        if (ends.length) barChart(frame, title, note, workers.map(String), series, { title: 'workers' }, { title: unit, suggestedMax: Math.max(...ends) });
      };
      bars('Throughput', 'median; whiskers from lowest to highest; × failed', rate, 'samples/s');
      if (targets.length) bars(`Time to ${targetText()}`, 'whisker to the top: a seed never got there; × half of them or more', targets[0], 'seconds');
      const scaled = rows.map(row => ({ row, marked: true, points: cells.filter(cell => cell.row === row && figure(cell, scaling))
        .map(cell => ({ x: cell.workers, y: figure(cell, scaling).median })) })).filter(({ points }) => points.length > 1);
      const ideal = { row: 'ideal', marked: true, dash: [2, 5], points: workers.map(n => ({ x: n, y: n / workers[0] })) };
      if (scaled.length) lineChart(frame, `Scaling against ${plural(workers[0], 'worker')}`, 'median over seeds; dotted: ideal', [...scaled, ideal],
        { title: 'workers', min: workers[0], max: workers.at(-1), tick: { stepSize: 1 } }, { title: 'times its own samples/s', min: 0 });
      runsChart(frame, link);
      panels(parent, link, 'Samples per second over time', time, { title: 'samples/s', zero: true, points: run => run.curve.slice(1).map((point, i) =>
        ({ x: time.of(point), y: (point.samples - run.curve[i].samples) / (point.seconds - run.curve[i].seconds) })) }, 'between two evaluations');
    },
    split(parent, link) {
      const cells = cellsOf(link).filter(cell => figure(cell, split[0])), frame = el('div', { className: 'charts' });
      if (!cells.length) return;
      const max = Math.max(...cells.map(cell => split.reduce((sum, part) => sum + figure(cell, part).median, 0)));
      parent.append(el('p', { className: 'legend' }, ...split.map((part, i) => el('span', { className: `chip p${i}` }, part.name))), frame,
        fold('The numbers', measuresTable('Parts of a step', cells, split)));
      for (const workers of workersOf(cells)) {
        const own = cells.filter(cell => cell.workers === workers);
        const series = split.map((part, i) => ({ name: part.name, colour: `p${i}`, points: own.map(cell => ({ y: figure(cell, part).median })) }));
        barChart(frame, `Parts of a step, ${plural(workers, 'worker')}`, 'a mean worker’s mean step, median over seeds', own.map(cell => cell.row), series,
          { title: 'time of a step (ms)', stacked: true, max }, { stacked: true }, { indexAxis: 'y' });
      }
    },
    staleness(parent, link) {
      const frame = el('div', { className: 'charts' }), fresh = new Set(), stale = [];
      for (const cell of cellsOf(link)) {
        const counts = new Map();
        for (const [value, count] of cell.good.flatMap(run => Object.entries(run.staleness?.histogram || {}))) counts.set(+value, (counts.get(+value) || 0) + count);
        const sorted = [...counts].filter(([, count]) => count > 0).sort((a, b) => a[0] - b[0]);
        if (sorted.at(-1)?.[0] > 0) stale.push({ cell, sorted });
        else if (sorted.length) fresh.add(cell.row);
      }
      parent.append(frame);
      for (const { cell, sorted } of stale) {
        const total = sorted.reduce((sum, [, count]) => sum + count, 0), most = sorted.at(-1)[0];
        let seen = 0;
        const common = sorted.find(([, count]) => (seen += count) >= 0.99 * total)[0];  // rarer values share a bar
        const width = Math.floor(common / 16) + 1, bins = Array(Math.floor(common / width) + (most > common ? 2 : 1)).fill(0);
        for (const [value, count] of sorted) bins[Math.min(Math.floor(value / width), bins.length - 1)] += 100 * count / total;
        const label = i => i * width > common ? `≥${i * width}` : width > 1 ? `${i * width}–${(i + 1) * width - 1}` : String(i);
        barChart(frame, `${cell.row}, ${plural(cell.workers, 'worker')}`, `mean ${number(figure(cell, costs[0]).median)}, largest ${most}`, bins.map((_, i) => label(i)),
          [{ name: 'updates', row: cell.row, colour: style(cell.row), points: bins.map(y => ({ y })) }], { title: 'staleness (updates)' }, { title: 'share of updates (%)' });
        fresh.delete(cell.row);
      }
      if (fresh.size) parent.append(soft(`Never stale, no update came between a gradient’s pull and its own: ${[...fresh].join(', ')}.`));
    },
    costs(parent, link) { parent.append(measuresTable('Costs', cellsOf(link), [...costs, ...targets.slice(2)])); },
    links(parent) {
      const workers = workersOf(runs).sort((a, b) => a - b);
      const cell = (found, text) => !found ? 'none' : { node: chip(found.best.cell.row), style: `won ${style(found.best.cell.row)}`,
        note: text(found.best.f) + (!found.next ? '' : found.clear ? '; clear' : '; too close to call') };
      const map = (title, measure, text) => el('div', {}, el('h4', {}, title), table(title, ['link', ...workers.map(n => plural(n, 'worker'))],
        links.map(link => [linkName(link), ...workers.map(n => cell(winner(cellsOf(link), n, measure), text))])));
      if (links.length > 1) parent.append(el('div', { className: 'maps' }, map('Most samples per second', rate, rateText),
        target === null ? '' : map(`First at ${targetText()}`, targets[0], timeText)));
      parent.append(linkModel());
      links.slice(1).forEach((link, i) => {
        const own = fold(`Tables and charts over ${linkName(link)}`, resultsTable(cellsOf(link)));
        for (const name of i < 2 ? ['curves', 'speed', 'split', 'costs'] : ['costs']) sections[name](own, link);
        parent.append(own);
      });
    },
    runs(parent) {
      if (!data.compare) return;
      const failed = runs.filter(run => run.failure), head = ['no.', 'strategy', 'workers', 'seed', 'link'];
      const who = run => [num(runs.indexOf(run) + 1), run.row, num(run.workers), num(run.seed), linkName(run.link)];
      const figures = run => [run.failure ? num('failed', '', 'bad') : num(orDash(run.seconds)), num(orDash(run.samples_per_second)),
        num(run.test_value == null ? '–' : metricText(run.test_value)), num(run.failure || target === null ? '–' : run.seconds_to_target === null ? 'never' : number(run.seconds_to_target)),
        num(orDash(run.cpu_seconds)), num(orDash((run.bytes_pushed + run.bytes_pulled) / 1e6)), num(orDash(run.other_cores)), run.weights_sha256?.slice(0, 8) || '–', run.out];
      if (compare.links.length) parent.append(el('h4', {}, 'Links: asked and measured'), table('Links', ['asked', 'measured|MB/s', 'measured|Mbit/s', 'round trip|ms', 'how'],
        compare.links.map(link => [linkName(link.asked), num(orDash(link.bytes_per_second / 1e6)), num(orDash(link.bytes_per_second / 125e3)), num(orDash(link.round_trip_ms)), link.how])));
      if (failed.length) parent.append(el('h4', {}, `Failures: ${failed.length} of ${plural(runs.length, 'run')}`),
        table('Failures', [...head, 'exit', 'reason'], failed.map(run => [...who(run), num(run.exit_code), { text: run.failure, style: 'why' }])));
      parent.append(fold(`All ${plural(runs.length, 'run')}, in the order in which they ran`, table('All runs', [...head, 'seconds', 'samples/s', metric.name, 'to target|seconds',
        'CPU|seconds', 'pushed and pulled|MB', 'other processes|cores', 'weights|SHA-256', 'folder'], runs.map(run => [...who(run), ...figures(run)]))));
    },
    training(parent) {
      const lines = data.metrics, frame = el('div', { className: 'charts' }), kept = [];
      const pauses = lines.slice(1).map((line, i) => line.seconds - lines[i].seconds).sort((a, b) => a - b);
      const long = Math.max(2, 8 * (pauses[pauses.length >> 1] || 0));  // an outage
      const back = (line, i) => i > 0 && line.step < lines[i - 1].step;
      const overTime = key => lines.flatMap((line, i) => [...(back(line, i) || line.seconds - lines[i - 1]?.seconds > long ? [{ x: lines[i - 1].seconds, y: NaN }] : []),
        { x: line.seconds, y: line[key] ?? NaN }]);
      const marks = lines.filter(back).map(line => ({ x: line.seconds, text: `server lost, back to step ${line.step}` }));
      for (const line of lines) {
        while (kept.length && kept.at(-1).step >= line.step) kept.pop();
        kept.push(line);
      }
      const draw = (title, points, x, y, extra) => {
        const values = points.map(point => point.y).filter(Number.isFinite), least = Math.min(...values);
        const log = y === 'training loss' && least > 0 && Math.max(...values) > 5 * least;
        if (values.length) lineChart(frame, title, log ? 'logarithmic' : '', [{ row: rows[0], points, free: true }], { title: x, min: 0, max: points.at(-1).x },
          { title: y, log, ...(log ? { min: least * 0.95 } : {}) }, extra);
      };
      draw('Training loss over time', overTime('loss'), 'time since training began (s)', 'training loss', { marks });
      draw('Training loss over samples', kept.map(line => ({ x: line.samples, y: line.loss ?? NaN })), 'samples trained on', 'training loss');
      draw('Speed over time', overTime('samples_per_second'), 'time since training began (s)', 'samples/s', { marks });
      parent.append(frame.children.length ? frame : soft('There are no metrics yet.'));
    },
    processes(parent) {
      const list = key => (Array.isArray(data.members[key]) ? data.members[key] : []).filter(member => member && typeof member === 'object').slice(0, 300);
      const name = member => [`${member.role ?? '?'} ${member.rank ?? ''}`, member.host ?? '', num(member.pid ?? '–')], members = list('members'), left = list('left');
      parent.append(table('Processes', ['process', 'host', 'pid', 'device', 'step', 'samples', 'CPU|s', 'memory|MiB, peak'], members.map(member => [...name(member), member.device ?? '',
        num(member.step ?? '–'), num(member.samples ?? '–'), num(orDash(member.cpu_seconds)), num(orDash(member.peak_rss_mib))])), left.length ? el('h4', {}, 'Processes that left') : '',
      table('Processes that left', ['process', 'host', 'pid', 'at|s', 'step', 'reason'], left.map(member => [...name(member), num(orDash(member.at_seconds)), num(member.step ?? '–'),
        { text: member.reason ?? '', style: 'why' }])));
      if (!members.length) parent.append(soft('There is no members.json.'));
    },
  };

  // Every run in its order, failed ones too, with what else the machine did.
  function runsChart(parent, link) {
    const own = runs.filter(run => run.link === link), order = run => runs.indexOf(run) + 1, known = own.some(run => Number.isFinite(run.other_cores));
    if (!own.length) return;
    const points = row => ({ type: 'scatter', label: row, row, hidden: hidden.has(row), backgroundColor: css(style(row)), borderColor: css(style(row)), pointRadius: 4,
      pointStyle: ({ raw }) => raw?.run.failure ? 'crossRot' : 'circle', data: own.filter(run => run.row === row).map(run => ({ x: order(run), y: run.failure ? 0 : run.samples_per_second, run })) });
    const load = () => ({ type: 'bar', label: 'other processes', yAxisID: 'y2', backgroundColor: `${css('soft')}55`, data: own.map(run => ({ x: order(run), y: run.other_cores })) });
    const label = ({ dataset, raw: { run, y } }) => !run ? `other processes: ${orDash(y)} cores`
      : `${dataset.label}, ${plural(run.workers, 'worker')}, seed ${run.seed}: ${run.failure || `${orDash(y)} samples/s`}`;
    drawChart(parent, 'Every run, in order', `samples/s; × failed${known ? '; bars: cores that other processes used' : ''}`, () => ({ data: { datasets: [...rows.map(points), ...(known ? [load()] : [])] },
      options: options({ type: 'linear', title: 'run', min: order(own[0]) - 1, max: order(own.at(-1)) + 1 }, { title: 'samples/s', min: 0 }, { mode: 'x', title: ([item]) => `run ${item?.raw.x}`, label },
        known ? { y2: { title: 'cores', min: 0, max: compare.cores || undefined } } : {}) }), 'wide');
  }

  // The lower bound of a step's communication, with G gradient bytes, n workers, s servers and B bytes/s each way, beside what was measured.
  function linkModel() {
    const G = 4 * (compare.model_parameters || 0);
    const word = (ring, server) => Math.abs(ring - server) <= 0.05 * Math.max(ring, server) ? 'even' : ring < server ? 'all-reduce' : 'server';
    const seconds = cell => cell ? num(orDash(split.slice(1).reduce((sum, part) => sum + (figure(cell, part)?.median ?? NaN), 0)), cell.row) : num('–');
    const body = compare.links.filter(link => G && link.bytes_per_second > 0).flatMap(({ asked, bytes_per_second: B, round_trip_ms }) =>
      workersOf(cellsOf(asked)).filter(n => n > 1).map(n => {
        const all = cellsOf(asked).filter(cell => cell.workers === n && cell.good.length), of = ring => all.filter(cell => cell.row.startsWith('allreduce') === ring);
        const ring = of(true).find(cell => cell.row === 'allreduce:ring') || of(true)[0], server = of(false).find(cell => cell.row === 'sync') || of(false)[0];
        const s = Math.max(server?.servers ?? 1, 1), byRing = 2 * (n - 1) * G / (n * B), byServer = Math.max(G / B, n * G / (s * B)), said = word(byRing, byServer);
        const seen = ring && server ? word(1 / figure(ring, rate)?.median, 1 / figure(server, rate)?.median) : '–';
        return [{ text: linkName(asked), note: `${number(B / 1e6)} MB/s, ${orDash(round_trip_ms)} ms` }, num(n), num(s), num(number(byRing * 1e3)), num(number(byServer * 1e3)), said,
          seconds(ring), seconds(server), { text: seen, note: seen === '–' || seen === said ? '' : 'not as predicted' }];
      }));
    return !body.length ? '' : el('div', {}, el('h4', {}, 'The textbook model beside the measurement'), el('p', {}, `With G gradient bytes (here ${number(G / 1e6)} MB), n workers, s servers ` +
      'and B bytes/s of the measured link, each way, one step needs at least 2(n−1)G/(nB) with a ring all-reduce and max(G/B, nG/(sB)) with servers. The model has no latency, ' +
      'no computing, and nothing that hides communication. Measured: push, wait and pull of a mean step; winner: the one with more samples/s.'),
    table('Model and measurement', ['link|measured, round trip', 'workers', 'servers', 'ring|predicted, ms', 'server|predicted, ms', 'winner|predicted', 'ring|measured, ms',
      'server|measured, ms', 'winner|measured'], body));
  }

  document.documentElement.classList.add('scripted');
  document.getElementById('text').open = false;
  for (const over of document.querySelectorAll('.over')) over.textContent = links.length > 1 ? ` Over ${linkName(links[0])}.` : '';
  for (const place of document.querySelectorAll('[data-part]')) {
    sections[place.dataset.part](place, links[0] ?? '');
    if (!place.querySelector('figure, table, p') && place.closest('section.js')) place.closest('section').remove();
  }
  document.querySelector('nav').append(...[...document.querySelectorAll('section')].map(({ id, children: [title] }) => el('a', { href: `#${id}` }, title.textContent)));
  redraw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
})();
