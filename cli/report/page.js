// Fills the sections of a report with tables and charts. Asks nothing of the network.

const linkName = link => link || 'loopback';
const rateText = ({ median }) => `${number(median)} samples/s`;
const timeText = ({ median, count, asked }) => `${number(median)} s in ${count} of ${plural(asked, 'seed')}`;
const heading = (text, note = '') => el('h4', `${text} `, el('span.soft', note));
const chartsIn = parent => parent.appendChild(el('div.charts'));
const fold = (title, ...children) =>
  Object.assign(el('details', el('summary', title), ...children), { ontoggle: redraw });

// ---- tables of measures ----

// Returns the column of a measure: the median, below it the range and how many seeds got there.
function measureColumn(measure, cells, isBest) {
  const known = cells.map(cell => spread(cell, measure)).filter(of => of?.count);
  const digits = decimalsFor(Math.max(0, ...known.map(({ max }) => Math.abs(max))));
  const text = value => !Number.isFinite(value) ? 'never' : measure.text ? measure.text(value) : fixed(value, digits);
  return numbers(measure.name, cell => {
    const of = spread(cell, measure);
    if (!of) return '–';
    const few = of.count < of.asked, low = text(of.min), high = few ? 'never' : text(of.max);
    const notes = [low === high ? '' : low + (low < '0' ? ' to ' : '–') + high,
      few ? `${of.count} of ${plural(of.asked, 'seed')}` : ''];
    const style = isBest(cell, measure, of) ? 'best' : '';
    return { text: text(of.median), note: notes.filter(Boolean).join('; '), style };
  }, measure.unit);
}

// Returns a table of the measures that have a value.
function measuresTable(about, cells, measures, isBest = () => false) {
  const known = measures.filter(measure => cells.some(cell => spread(cell, measure)));
  return table(about, [
    column('strategy', ({ row, tuned }) => ({ node: chip(row), note: tuned && `tuned: ${tuned}` })),
    numbers('runs', ({ seeds, good, failed }) => failed.length
      ? { text: `${failed.length} of ${seeds.length}`, note: 'failed', style: 'bad' } : good.length),
    ...known.map(measure => measureColumn(measure, cells, isBest)),
  ], cells, ({ workers }) => plural(workers, 'worker'));
}

const resultsTable = cells => measuresTable('Results', cells, [rate, scaling, final, ...targets], (cell, measure) => {
  const found = measure.ranked && winner(cells, cell.workers, measure);
  return found?.clear && found.best.cell === cell;
});

// ---- figures ----

// Appends a row of figures with the same axes, one for each number of workers. curveOf: returns the points of a run.
function panels(parent, cells, title, x, y, note, curveOf) {
  const curve = ({ row, good }) => ({ row, points: medianCurve(good.map(curveOf)) });
  const shown = workersOf(cells).map(workers => ({ workers, curves: cells.filter(cell => cell.workers === workers)
    .map(curve).filter(({ points }) => points.length) })).filter(({ curves }) => curves.length);
  const all = shown.flatMap(({ curves }) => curves.map(({ points }) => points));
  if (all.every(points => points.length < 2)) {
    if (all.length) parent.append(el('p.soft', `${title}: each run has one evaluation; set eval-every for a curve.`));
    return;
  }
  const { falls, fromZero, limit, rule, ...yAxis } = { ...y, ...sharedRange(all, y) };
  const xAxis = { title: x.title, min: 0, max: Math.max(...all.flat().map(point => point.x)) };
  const seeds = cells.some(({ good }) => good.length > 1);
  const notes = [seeds ? 'median over seeds, band from lowest to highest' : 'one seed, no band',
    rule && 'dotted: the target', note].filter(Boolean).join('; ');
  const alone = shown.length === 1;  // then it shares a row of figures with others
  if (!alone) parent.append(heading(title, notes));
  const frame = alone && parent.querySelector(':scope > .alone') || chartsIn(parent);
  frame.classList.toggle('alone', alone);
  for (const { workers, curves } of shown) {
    curvesFigure(frame, `${title}, ${plural(workers, 'worker')}`, alone ? notes : '', curves, xAxis, yAxis,
      { rule, marks: x.marks });
  }
}

function timeAxis(link) {
  const longest = Math.max(0, ...runs.filter(run => run.link === link).map(run => run.curve?.at(-1)?.seconds ?? 0));
  const units = [['ms', 1e-3, 0.5], ['s', 1, 600], ['min', 60, 10800], ['h', 3600, Infinity]];
  const [name, unit] = units.find(([, , end]) => longest < end);
  return { title: `time since training began (${name})`, of: point => point.seconds / unit };
}

// Appends a bar with whiskers for each row and number of workers.
function measureBars(parent, title, note, cells, measure, unit) {
  const bar = (row, workers) => {
    const cell = cells.find(cell => cell.row === row && cell.workers === workers), of = cell && spread(cell, measure);
    const failed = !cell ? 'not run' : of ? 'never' : cell.failed[0]?.failure ?? 'no value';
    return { x: String(workers), ...(Number.isFinite(of?.median)
      ? { y: of.median, range: [of.min, of.count < of.asked ? Infinity : of.max] } : { y: 0, failed }) };
  };
  const ends = cells.map(cell => spread(cell, measure)?.max).filter(Number.isFinite);
  const bars = row => ({ type: 'bar', ...setOf(row, workersOf(cells).map(workers => bar(row, workers))) });
  if (ends.length) figure(parent, title, note, () => rows.map(bars),
    { x: { title: 'workers' }, y: { title: unit, suggestedMax: Math.max(...ends) } });
}

function scalingFigure(parent, cells) {
  const workers = workersOf(cells), look = { stepped: false, pointRadius: 3 };
  const curve = row => ({ row, look, points: cells.filter(cell => cell.row === row && spread(cell, scaling))
    .map(cell => ({ x: cell.workers, y: spread(cell, scaling).median })) });
  const curves = rows.map(curve).filter(({ points }) => points.length > 1);
  const ideal = { row: 'ideal', look: { ...look, borderDash: [2, 5] },
    points: workers.map(count => ({ x: count, y: count / workers[0] })) };
  if (curves.length) curvesFigure(parent, `Scaling against ${plural(workers[0], 'worker')}`,
    'median over seeds; dotted: ideal', [...curves, ideal],
    { title: 'workers', min: workers[0], max: workers.at(-1), ticks: { stepSize: 1 } },
    { title: 'times its own samples/s', min: 0 });
}

// Appends every run in its order, failed ones too, and what else the machine did.
function runsFigure(parent, link) {
  const own = runs.filter(run => run.link === link), order = run => runs.indexOf(run) + 1;
  const point = run => ({ x: order(run), y: run.failure ? 0 : run.samples_per_second, run,
    text: `${run.row}, ${plural(run.workers, 'worker')}, seed ${run.seed}: ` +
      (run.failure || `${orDash(run.samples_per_second)} samples/s`) });
  const points = row => ({ type: 'scatter', ...setOf(row, own.filter(run => run.row === row).map(point)),
    pointRadius: 4, pointStyle: ({ raw }) => (raw?.run.failure ? 'crossRot' : 'circle') });
  const load = own.filter(run => Number.isFinite(run.other_cores)).map(run => (
    { x: order(run), y: run.other_cores, text: `other processes: ${number(run.other_cores)} cores` }));
  const bars = () => ({ type: 'bar', ...setOf('other processes', load, `${css('soft')}55`), yAxisID: 'y2' });
  const y2 = { title: 'cores', position: 'right', grid: { display: false }, min: 0,
    max: comparison.cores || undefined };
  const x = { title: 'run', type: 'linear', min: order(own[0]) - 1, max: order(own.at(-1)) + 1 };
  const note = `samples/s; × failed${load.length ? '; bars: cores that other processes used' : ''}`;
  figure(parent, 'Every run, in order', note, () => [...rows.map(points), ...(load.length ? [bars()] : [])],
    { x, y: { title: 'samples/s', min: 0 }, ...(load.length ? { y2 } : {}) }, { mode: 'x', wide: true });
}

// ---- sections of a comparison ----

function verdictOf({ best, next, clear }, measure) {
  if (measure === final && sameBits(best.cell, next.cell)) return 'The same bits: equal weights in every seed.';
  if (clear) return 'No seed of another did as well.';
  return best.of.count < 2 ? 'One seed: chance is not ruled out.' : 'Too close to call: ranges overlap.';
}

// Returns a card with the best row of those with the most workers.
function card(title, cells, measure, text) {
  const workers = cells.at(-1).workers, found = winner(cells, workers, measure);
  const place = `${title} with ${plural(workers, 'worker')}${links.length > 1 ? ` over ${linkName(links[0])}` : ''}`;
  if (!found) return el('div.card', place, el('p', 'none'));
  const { best, next } = found;
  const beside = next ? `; next: ${next.cell.row}, ${text(next.of)}. ${verdictOf(found, measure)}` : '';
  return el('div.card', place, chip(best.cell.row), el('p', el('b', text(best.of)), beside));
}

// Returns a line for each group of cells that ended in the same weights in every seed.
function sameBitsLines(cells) {
  const told = new Set();
  return cells.flatMap(first => {
    const same = cells.filter(cell => !told.has(cell) && sameBits(first, cell));
    same.forEach(cell => told.add(cell));
    const names = same.map(({ row, workers }) => `${row} with ${plural(workers, 'worker')}`).join(', ');
    return same.length > 1 ? [el('p.soft', `The same bits, equal final weights in every seed: ${names}.`)] : [];
  });
}

function drawResults(parent, link) {
  const cells = cellsOf(link);
  if (!data.compare || !cells.length) return;
  document.getElementById('cards').append(card('Most samples per second', cells, rate, rateText),
    ...targets.slice(0, 1).map(time => card(`First at ${targetText()}`, cells, time, timeText)),
    card(`${metric.share ? 'Most accurate' : `Best ${metric.name}`} at the end`, cells, final,
      ({ median }) => metricText(median)));
  parent.append(resultsTable(cells), ...sameBitsLines(cells));
}

function drawPairs(parent) {
  const isBest = (cell, { lower, even, text }, of) =>
    of.count > 1 && (lower ? parseFloat(text(of.max)) < even : parseFloat(text(of.min)) > even);
  const isBeside = run => run.strategy !== 'sync' && partner(run, 'sync', run.workers);
  for (const link of links) {
    const cells = cellsOf(link).filter(({ good }) => good.some(isBeside));
    if (links.length > 1 && cells.length) parent.append(heading(linkName(link)));
    parent.append(measuresTable('Beside sync', cells, [rate, final, ...targets].map(besideSync), isBest));
  }
}

function drawCurves(parent, link) {
  const cells = cellsOf(link), tested = runs.some(run => run.curve?.some(point => point.test_loss != null));
  const value = { name: metric.title, of: point => (point.test_value ?? NaN) * metric.scale, axis: {
    title: `test ${metric.name}`, valueText: value => value.toFixed(metric.digits) + metric.unit,
    ticks: { callback: value => `${+value.toPrecision(6)}${metric.unit}` }, falls: !metric.higher,
    rule: target === null || targetMeasure !== null ? null : target * metric.scale, limit: metric.share ? metric.scale : undefined,
  } };
  const loss = { name: tested ? 'Test loss' : 'Training loss', axis: { title: tested ? 'test loss' : 'training loss',
    falls: true }, of: point => (tested ? point.test_loss : point.train_loss) ?? NaN };
  const axes = { time: timeAxis(link), samples: { title: 'samples trained on', of: point => point.samples } };
  legend(parent, cells);
  for (const y of [value, loss]) {
    for (const [over, x] of Object.entries(axes)) {
      panels(parent, cells, `${y.name} over ${over}`, x, y.axis, '',
        run => run.curve.map(point => ({ x: x.of(point), y: y.of(point) })));
    }
  }
}

function drawSpeed(parent, link) {
  const cells = cellsOf(link), time = timeAxis(link);
  legend(parent, cells);
  const frame = chartsIn(parent);
  measureBars(frame, 'Throughput', 'median; whiskers from lowest to highest; × failed', cells, rate, 'samples/s');
  for (const seconds of targets.slice(0, 1)) measureBars(frame, `Time to ${targetText()}`,
    'whisker to the top: a seed never got there; × half of them or more', cells, seconds, 'seconds');
  scalingFigure(frame, cells);
  if (cells.length) runsFigure(frame, link);
  panels(parent, cells, 'Samples per second over time', time, { title: 'samples/s', fromZero: true },
    'between two evaluations', ({ curve }) => curve.slice(1).map((point, i) => ({ x: time.of(point),
      y: (point.samples - curve[i].samples) / (point.seconds - curve[i].seconds) })));
}

function drawSplit(parent, link) {
  const cells = cellsOf(link).filter(cell => spread(cell, split[0]));
  if (!cells.length) return;
  const max = Math.max(...cells.map(cell => split.reduce((sum, part) => sum + spread(cell, part).median, 0)));
  parent.append(el('p.legend', ...split.map(({ name }, i) => el(`span.chip.p${i}`, name))));
  const frame = chartsIn(parent);
  for (const workers of workersOf(cells)) {
    const own = cells.filter(cell => cell.workers === workers);
    const bars = (part, i) => ({ type: 'bar', ...setOf(part.name,
      own.map(cell => ({ x: spread(cell, part).median, y: cell.row })), css(`p${i}`)) });
    figure(frame, `Parts of a step, ${plural(workers, 'worker')}`, 'a mean worker’s mean step, median over seeds',
      () => split.map(bars), { x: { title: 'time of a step (ms)', stacked: true, max }, y: { stacked: true } },
      { flat: true });
  }
  parent.append(fold('The numbers', measuresTable('Parts of a step', cells, split)));
}

function drawStaleness(parent, link) {
  const cells = cellsOf(link).map(cell => ({ ...cell, counts: stalenessCounts(cell) }))
    .filter(({ counts }) => counts.length);
  const stale = cells.filter(({ counts }) => counts.at(-1)[0] > 0), frame = chartsIn(parent);
  for (const cell of stale) {
    const note = `mean ${number(spread(cell, staleness).median)}, largest ${cell.counts.at(-1)[0]}`;
    figure(frame, `${cell.row}, ${plural(cell.workers, 'worker')}`, note,
      () => [{ type: 'bar', ...setOf(cell.row, stalenessBars(cell.counts)) }],
      { x: { title: 'staleness (updates)' }, y: { title: 'share of updates (%)' } });
  }
  const never = rows.filter(row => cells.some(cell => cell.row === row) && !stale.some(cell => cell.row === row));
  const line = `Never stale, no update came between a gradient’s pull and its own: ${never.join(', ')}.`;
  if (never.length) parent.append(el('p.soft', line));
}

function drawCosts(parent, link) {
  parent.append(measuresTable('Costs', cellsOf(link), [...costs, ...targets.slice(2)]));
}

// ---- links ----

// Returns a table of the best rows by link and number of workers.
function linkMap(title, measure, text) {
  const best = (link, workers) => {
    const found = winner(cellsOf(link), workers, measure);
    if (!found) return 'none';
    const { best: { cell, of }, next, clear } = found;
    const verdict = !next ? '' : clear ? '; clear' : '; too close to call';
    return { node: chip(cell.row), style: `won ${colourOf(cell.row)}`, note: text(of) + verdict };
  };
  const columns = workersOf(runs).map(workers => column(plural(workers, 'worker'), link => best(link, workers)));
  return el('div', heading(title), table(title, [column('link', linkName), ...columns], links));
}

// Returns the lower bound of a step's communication beside what was measured, as a row of the table below, with
// G gradient bytes, n workers, s servers and B bytes/s each way.
function modelRow({ asked: link, bytes_per_second: B, round_trip_ms: roundTrip }, G, n) {
  const cells = cellsOf(link).filter(cell => cell.workers === n && cell.good.length);
  const isRing = ({ row }) => row.startsWith('allreduce'), named = name => cells.find(({ row }) => row === name);
  const ring = named('allreduce:ring') ?? cells.find(isRing);
  const server = named('sync') ?? cells.find(cell => !isRing(cell));
  const better = (a, b) => Math.abs(a - b) <= 0.05 * Math.max(a, b) ? 'even' : a < b ? 'all-reduce' : 'server';
  const s = Math.max(server?.servers ?? 1, 1);
  const byRing = 2 * (n - 1) * G / (n * B), byServer = Math.max(G / B, n * G / (s * B));
  const seconds = cell => 1 / spread(cell, rate)?.median;
  return { link, B, roundTrip, n, s, ring, server, byRing, byServer, predicted: better(byRing, byServer),
    measured: ring && server ? better(seconds(ring), seconds(server)) : '–' };
}

function linkModel() {
  const G = 4 * (comparison.model_parameters || 0);
  const body = comparison.links.filter(link => G && link.bytes_per_second > 0).flatMap(link =>
    workersOf(cellsOf(link.asked)).filter(n => n > 1).map(n => modelRow(link, G, n)));
  const communication = cell => cell && { note: cell.row,
    text: orDash(split.slice(1).reduce((sum, part) => sum + (spread(cell, part)?.median ?? NaN), 0)) };
  const about = `With G gradient bytes (here ${number(G / 1e6)} MB), n workers, s servers and B bytes/s of the ` +
    'measured link, each way, one step needs at least 2(n−1)G/(nB) with a ring all-reduce and max(G/B, nG/(sB)) with ' +
    'servers. The model has no latency, no computing, and nothing that hides communication. Measured: push, wait and ' +
    'pull of a mean step; winner: the one with more samples/s.';
  const title = 'The textbook model beside the measurement';
  return !body.length ? '' : el('div', heading(title), el('p', about), table('Model and measurement', [
    column('link', ({ link, B, roundTrip }) => ({ text: linkName(link),
      note: `${number(B / 1e6)} MB/s, ${orDash(roundTrip)} ms` }), 'measured, round trip'),
    numbers('workers', ({ n }) => n), numbers('servers', ({ s }) => s),
    numbers('ring', ({ byRing }) => byRing * 1e3, 'predicted, ms'),
    numbers('server', ({ byServer }) => byServer * 1e3, 'predicted, ms'),
    column('winner', ({ predicted }) => predicted, 'predicted'),
    numbers('ring', ({ ring }) => communication(ring), 'measured, ms'),
    numbers('server', ({ server }) => communication(server), 'measured, ms'),
    column('winner', ({ measured, predicted }) => ({ text: measured,
      note: ['–', predicted].includes(measured) ? '' : 'not as predicted' }), 'measured'),
  ], body));
}

function drawLinks(parent) {
  if (links.length > 1) parent.append(el('div.maps', linkMap('Most samples per second', rate, rateText),
    ...targets.slice(0, 1).map(time => linkMap(`First at ${targetText()}`, time, timeText))));
  parent.append(linkModel());
  links.slice(1).forEach((link, i) => {
    const own = parent.appendChild(fold(`Tables and charts over ${linkName(link)}`, resultsTable(cellsOf(link))));
    for (const draw of i < 2 ? [drawCurves, drawSpeed, drawSplit, drawCosts] : [drawCosts]) draw(own, link);
  });
}

// ---- all runs ----

function drawRuns(parent) {
  if (!data.compare) return;
  const settings = [numbers('no.', run => runs.indexOf(run) + 1), column('strategy', run => run.row),
    numbers('workers', run => run.workers), numbers('seed', run => run.seed),
    column('link', run => linkName(run.link))];
  const failed = runs.filter(run => run.failure);
  const toTarget = run => run.failure || target === null ? '–' : run.seconds_to_target ?? 'never';
  if (comparison.links.length) parent.append(heading('Links: asked and measured'), table('Links', [
    column('asked', link => linkName(link.asked)), numbers('measured', link => link.bytes_per_second / 1e6, 'MB/s'),
    numbers('measured', link => link.bytes_per_second / 125e3, 'Mbit/s'),
    numbers('round trip', link => link.round_trip_ms, 'ms'), column('how', link => link.how),
  ], comparison.links));
  if (failed.length) parent.append(heading(`Failures: ${failed.length} of ${plural(runs.length, 'run')}`),
    table('Failures', [...settings, numbers('exit', run => run.exit_code),
      column('reason', run => ({ text: run.failure, style: 'why' }))], failed));
  parent.append(fold(`All ${plural(runs.length, 'run')}, in the order in which they ran`, table('All runs', [
    ...settings, numbers('seconds', run => (run.failure ? { text: 'failed', style: 'bad' } : run.seconds)),
    numbers('samples/s', run => run.samples_per_second),
    numbers(metric.name, run => (run.test_value == null ? '–' : metricText(run.test_value))),
    numbers('to target', toTarget, 'seconds'), numbers('CPU', run => run.cpu_seconds, 'seconds'),
    numbers('pushed and pulled', run => (run.bytes_pushed + run.bytes_pulled) / 1e6, 'MB'),
    numbers('other processes', run => run.other_cores, 'cores'),
    column('weights', run => run.weights_sha256?.slice(0, 8) || '–', 'SHA-256'), column('folder', run => run.out),
  ], runs)));
}

// ---- sections of one run ----

function drawTraining(parent) {
  const lines = data.metrics, frame = chartsIn(parent), time = 'time since training began (s)';
  const pauses = lines.slice(1).map((line, i) => line.seconds - lines[i].seconds).sort((a, b) => a - b);
  const long = Math.max(2, 8 * (pauses[pauses.length >> 1] ?? 0));  // an outage
  const isAfterGap = (line, i) => i > 0 && (line.back_to_step != null || line.seconds - lines[i - 1].seconds > long);
  const overTime = key => lines.flatMap((line, i) => [
    ...(isAfterGap(line, i) ? [{ x: lines[i - 1].seconds, y: NaN }] : []), { x: line.seconds, y: line[key] ?? NaN }]);
  const overSamples = withoutRepeated(lines, line => line.step).map(line => ({ x: line.samples, y: line.loss ?? NaN }));
  const marks = lines.filter(({ lost }) => lost).map(({ seconds: x, lost, back_to_step: step }) => (
    { x, text: `${[lost].flat().join(', ')} lost${step == null ? '' : `, back to step ${step}`}` }));
  const draw = (title, points, x, y, extras) => {
    const values = points.map(point => point.y).filter(Number.isFinite), least = Math.min(...values);
    const log = y === 'training loss' && least > 0 && Math.max(...values) > 5 * least;
    if (values.length) curvesFigure(frame, title, log ? 'logarithmic' : '',
      [{ row: rows[0], points, look: { stepped: false } }], { title: x, min: 0, max: points.at(-1).x },
      { title: y, log, ...(log ? { min: least * 0.95 } : {}) }, extras);
  };
  draw('Training loss over time', overTime('loss'), time, 'training loss', { marks });
  draw('Training loss over samples', overSamples, 'samples trained on', 'training loss');
  draw('Speed over time', overTime('samples_per_second'), time, 'samples/s', { marks });
  if (!frame.children.length) frame.replaceWith(el('p.soft', 'There are no metrics yet.'));
}

function drawProcesses(parent) {
  const listed = name => [data.members[name]].flat().filter(member => Object(member) === member).slice(0, 300);
  const members = listed('members'), left = listed('left');
  const process = [column('process', ({ role, rank }) => `${role ?? '?'} ${rank ?? ''}`),
    column('host', ({ host }) => host ?? ''), numbers('pid', ({ pid }) => `${pid ?? '–'}`)];
  const step = numbers('step', member => member.step);
  const place = members.some(({ stage }) => stage != null)
    ? [column('group/stage', ({ group, stage }) => (stage == null ? '' : `${group ?? '–'}/${stage}`))] : [];
  parent.append(table('Processes', [
    ...process, ...place, column('device', ({ device }) => device ?? ''), step, numbers('samples', member => member.samples),
    numbers('CPU', member => member.cpu_seconds, 's'), numbers('memory', member => member.peak_rss_mib, 'MiB, peak'),
  ], members));
  if (left.length) parent.append(heading('Processes that left'), table('Processes that left', [
    ...process, numbers('at', member => member.at_seconds, 's'), step,
    column('reason', ({ reason }) => ({ text: reason ?? '', style: 'why' })),
  ], left));
  if (!members.length) parent.append(el('p.soft', 'There is no members.json.'));
}

// ---- the page ----

const sections = { results: drawResults, pairs: drawPairs, training: drawTraining, curves: drawCurves, speed: drawSpeed,
  split: drawSplit, staleness: drawStaleness, costs: drawCosts, links: drawLinks, processes: drawProcesses,
  runs: drawRuns };

document.documentElement.classList.add('scripted');
document.getElementById('text').open = false;
for (const over of document.querySelectorAll('.over'))
  over.textContent = links.length > 1 ? ` Over ${linkName(links[0])}.` : '';
for (const place of document.querySelectorAll('[data-part]')) {
  sections[place.dataset.part](place, links[0] ?? '');
  if (!place.querySelector('figure, table, p')) place.closest('section.js')?.remove();
}
document.querySelector('nav').append(...[...document.querySelectorAll('section')].map(({ id, children: [title] }) =>
  Object.assign(el('a', title.textContent), { href: `#${id}` })));
redraw();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
