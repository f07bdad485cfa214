// Computes the figures of a report. Runs that differ only in their seed form a cell; a cell has a median and a range.

const data = JSON.parse(document.getElementById('data').textContent);
const { metric, rows } = data;  // rows: strategies, with --codecs and --stages also these, in the order of their colours
const comparison = data.compare ?? { links: [], runs: [runOfFolder()] };
const target = comparison.target ?? null;
const runs = comparison.runs.map(run => (
  { ...run, row: rowOf(run), link: run.link ?? '' }));
const links = [...new Set(runs.map(run => run.link))].sort((a, b) => (a !== '') - (b !== ''));  // loopback first

// Returns the name of a run's row.
function rowOf({ strategy, codec, stages }) {
  const parts = Number.isFinite(stages) ? `, ${stages} ${stages === 1 ? 'stage' : 'stages'}` : '';
  return (codec ? `${strategy} ${codec}` : strategy) + parts;
}

// Returns the run of `pushpull report` as an entry of compare.json.
function runOfFolder() {
  const evaluations = withoutRepeated(data.metrics.filter(line => line.test_step != null), line => line.test_step);
  const curve = evaluations.map(line => ({
    seconds: line.test_seconds ?? line.seconds, samples: line.test_samples, step: line.test_step,
    test_loss: line.test_loss, train_loss: line.loss, test_value: line.heads?.[0]?.value ?? line.test_accuracy,
  }));
  return { ...data.summary, strategy: rows[0], workers: data.workers, seed: 0, failure: null, curve };
}

// After a lost server a run repeats the steps since a checkpoint: the later line of a step counts.
function withoutRepeated(lines, stepOf) {
  const kept = [];
  for (const line of lines) {
    while (kept.length && stepOf(kept.at(-1)) >= stepOf(line)) kept.pop();
    kept.push(line);
  }
  return kept;
}

// ---- cells ----

const workersOf = items => [...new Set(items.map(item => item.workers))].sort((a, b) => a - b);

// Returns the cells of a link, by workers, then by row.
function cellsOf(link) {
  const own = runs.filter(run => run.link === link);
  const cell = (row, workers) => {
    const seeds = own.filter(run => run.row === row && run.workers === workers);
    const { servers, tuned } = seeds[0] ?? {};
    return { row, workers, servers, tuned, seeds, good: seeds.filter(run => !run.failure),
      failed: seeds.filter(run => run.failure) };
  };
  return workersOf(own).flatMap(workers => rows.map(row => cell(row, workers))).filter(({ seeds }) => seeds.length);
}

// Returns the median and the range of a measure over a cell, or null. In a measure of the way to the target, a seed
// without a value counts as later than all others.
function spread({ seeds, good }, { value, toTarget }) {
  const known = good.map(value).filter(Number.isFinite).sort((a, b) => a - b);
  if (!known.length && !(toTarget && good.length)) return null;
  const asked = toTarget ? seeds.length : known.length;
  const all = [...known, ...Array(asked - known.length).fill(Infinity)], half = all.length >> 1;
  const median = all.length % 2 ? all[half] : (all[half - 1] + all[half]) / 2;
  return { median, min: all[0], max: known.at(-1) ?? Infinity, count: known.length, asked };
}

// Returns the best cell with as many workers and the next one, or null. Clear: two seeds or more, all better than every
// seed of the others.
function winner(cells, workers, measure) {
  const sign = measure.lower ? 1 : -1;
  const [best, ...others] = cells.filter(cell => cell.workers === workers)
    .map(cell => ({ cell, of: spread(cell, measure) })).filter(({ of }) => Number.isFinite(of?.median))
    .sort((a, b) => sign * (a.of.median - b.of.median));
  if (!best) return null;
  const beats = ({ of }) => (measure.lower ? best.of.max < of.min : best.of.min > of.max);
  const isWhole = best.of.count > 1 && best.of.count === best.of.asked;
  return { best, next: others[0], clear: others.length > 0 && isWhole && others.every(beats) };
}

// Returns whether all seeds of two cells ended in the same weights.
function sameBits(a, b) {
  const pairs = a.good.flatMap(run => b.good.filter(({ seed }) => seed === run.seed).map(other => [run, other]));
  return pairs.length > 0 && pairs.every(([run, other]) =>
    run.weights_sha256 && run.weights_sha256 === other.weights_sha256);
}

// Returns the run of a strategy with the same seed, link, codec and stages, if it succeeded.
const partner = (run, strategy, workers) => runs.find(other => !other.failure && other.strategy === strategy &&
  other.workers === workers && other.seed === run.seed && other.link === run.link && other.codec === run.codec &&
  other.stages === run.stages);

// ---- measures ----

const fewest = Math.min(...runs.map(run => run.workers));
const metricText = value => (value * metric.scale).toFixed(metric.digits) + metric.unit;
const targetMeasure = comparison.target_measure ?? null;  // of another head, or a loss
const targetText = () => targetMeasure !== null ? `${targetMeasure} ${+target.toPrecision(6)}`
  : `${+(target * metric.scale).toPrecision(6)}${metric.unit} test ${metric.name}`;

// Returns a measure: the value at a path in the run ("split.push"), in units of `size`.
const measureOf = (name, unit, path, size = 1, traits = {}) => ({ name, unit, ...traits,
  value: run => (path.split('.').reduce((part, key) => part?.[key], run) ?? NaN) / size });
const perStep = (name, key) => ({ name, unit: 'MB per step', value: run => run[key] / run.steps / 1e6 });
const wayToTarget = (...of) => measureOf(...of, { ranked: true, lower: true, toTarget: true });

const rate = measureOf('samples/s', 'median, range', 'samples_per_second', 1, { ranked: true });
const final = measureOf(`final ${metric.name}`, 'median, range', 'test_value', 1,
  { ranked: true, lower: !metric.higher, text: metricText });
const scaling = { name: 'scaling', unit: `× own ${plural(fewest, 'worker')}`,
  value: run => run.samples_per_second / partner(run, run.strategy, fewest)?.samples_per_second };
const targets = target === null ? [] : [
  wayToTarget('time to target', 'seconds', 'seconds_to_target', 1),
  wayToTarget('samples to target', '', 'samples_to_target', 1),
  wayToTarget('CPU to target', 'seconds', 'cpu_seconds_to_target', 1),
  wayToTarget('bytes to target', 'MB', 'bytes_to_target', 1e6),
];
const split = ['compute', 'push', 'wait', 'pull'].map(part => measureOf(part, 'ms', `split.${part}`, 1e-3));
const staleness = measureOf('staleness', 'mean', 'staleness.mean');
const roles = [...new Set(runs.flatMap(run => Object.keys(run.cpu_seconds_per_role ?? {})))].sort();
const costs = [
  staleness, measureOf('staleness', 'largest', 'staleness.max'),
  perStep('pushed', 'bytes_pushed'), perStep('pulled', 'bytes_pulled'),
  { name: 'pushes dropped', value: run => run.pushes_dropped || NaN },
  ...roles.map(role => measureOf(`CPU ${role}s`, 'seconds', `cpu_seconds_per_role.${role}`)),
  ...roles.map(role => measureOf(`peak ${role}`, 'MiB', `peak_mib.${role}`)),
  measureOf('other processes', 'cores', 'other_cores'),
];

// Returns the measure of a run beside that of sync with the same seed: the ratio, or the difference of a metric.
function besideSync(measure) {
  const [unit, even, beside] = measure === final ? ['minus sync', 0, (a, b) => a - b] : ['÷ sync', 1, (a, b) => a / b];
  const value = run => {
    const sync = partner(run, 'sync', run.workers);
    return sync ? beside(measure.value(run), measure.value(sync)) : NaN;
  };
  return { ...measure, unit, even, value, toTarget: false, text: measure.text ?? (ratio => ratio.toFixed(2)) };
}

// ---- curves and histograms ----

// Returns the median of the seeds, with its range, at each place where one of them changes, from where all have a
// value. A seed ends at its first value that is not finite.
function medianCurve(curves) {
  const whole = curves.map(points => {
    const end = points.findIndex(({ y }) => !Number.isFinite(y));
    return end < 0 ? { points, end: Infinity } : { points: points.slice(0, end), end: points[end].x };
  }).filter(({ points }) => points.length);
  const begin = Math.max(...whole.map(({ points }) => points[0].x));
  const places = new Set(whole.flatMap(({ points }) => points.map(({ x }) => x)).filter(x => x >= begin));
  return [...places].sort((a, b) => a - b).flatMap(x => {
    const good = whole.filter(({ end }) => x < end).map(({ points }) => points.findLast(point => point.x <= x).y);
    const of = spread({ good }, { value: y => y });
    return of ? [{ x, y: of.median, range: [of.min, of.max] }] : [];
  });
}

// Returns the range of values that the panels of a row share. It covers what comes after the first third.
function sharedRange(curves, { falls, fromZero, rule, limit = Infinity }) {
  const late = curves.flatMap(points => points.filter(({ x }) => x >= points.at(-1).x / 3));
  const values = late.flatMap(({ range }) => range).concat(rule ?? []);
  const least = Math.min(...values), most = Math.max(...values);
  if (falls) {
    const log = least > 0 && most / least > 5, highest = Math.max(...curves.flat().map(({ range }) => range[1]));
    return { log, min: log ? least * 0.95 : 0, max: Math.min(most * 2, highest) };
  }
  const step = 10 ** Math.floor(Math.log10(most - least || 1));
  return { min: fromZero ? 0 : Math.floor(least / step) * step, max: Math.min(Math.ceil(most / step) * step, limit) };
}

// Returns the updates of a cell by staleness, as sorted pairs.
function stalenessCounts({ good }) {
  const counts = new Map();
  for (const [value, count] of good.flatMap(run => Object.entries(run.staleness?.histogram ?? {})))
    counts.set(+value, (counts.get(+value) ?? 0) + count);
  return [...counts].filter(([, count]) => count > 0).sort((a, b) => a[0] - b[0]);
}

// Returns up to 18 bars {x, y}: the share of updates in percent. The rarest hundredth shares the last one.
function stalenessBars(counts) {
  const total = counts.reduce((sum, [, count]) => sum + count, 0), most = counts.at(-1)[0];
  let seen = 0;
  const [common] = counts.find(([, count]) => (seen += count) >= 0.99 * total);
  const width = Math.floor(common / 16) + 1;
  const shares = Array(Math.floor(common / width) + (most > common ? 2 : 1)).fill(0);
  for (const [value, count] of counts)
    shares[Math.min(Math.floor(value / width), shares.length - 1)] += 100 * count / total;
  return shares.map((y, i) => {
    const from = i * width, to = from + width - 1;
    return { x: from > common ? `≥${from}` : from === to ? String(from) : `${from}–${to}`, y };
  });
}
