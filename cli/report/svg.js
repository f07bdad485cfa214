// Charts as SVG: Chart.js draws a chart once more, on a context that writes down what is drawn.

// Returns a canvas of this size whose context passes each call, with itself, to the function of that name in `record`.
function recordingCanvas(width, height, record) {
  const canvas = new OffscreenCanvas(width, height), context = canvas.getContext('2d');
  const recorded = name => (...values) => {
    record[name]?.(context, ...values);
    return context[name](...values);
  };
  const spy = new Proxy(context, {
    get: (_, name) => (typeof context[name] === 'function' ? recorded(name) : context[name]),
    set: (_, name, value) => Reflect.set(context, name, value),
  });
  return Object.assign(canvas, { getContext: () => spy });
}

// Returns a colour as two attributes: programs for papers know no rgba().
function paint(kind, colour) {
  const [, red, green, blue, alpha] = /^rgba\((\d+), (\d+), (\d+), ([\d.]+)\)$/.exec(colour) ?? [];
  return `${kind}="${alpha ? `rgb(${red},${green},${blue})` : colour}" ${kind}-opacity="${alpha ?? 1}"`;
}

function textElement(context, text, x, y) {
  const { a, b, c, d, e, f } = context.getTransform();
  const anchor = { center: 'middle', right: 'end', end: 'end' }[context.textAlign] ?? 'start';
  const baseline = { middle: 'central', top: 'hanging' }[context.textBaseline] ?? 'auto';
  return `<text x="${x}" y="${y}" transform="matrix(${[a, b, c, d, e, f]})" text-anchor="${anchor}" ` +
    `dominant-baseline="${baseline}" style="font:${context.font.replace(/"/g, "'")}" ` +
    `${paint('fill', context.fillStyle)}>${text.replace(/&/g, '&amp;').replace(/</g, '&lt;')}</text>`;
}

// Returns a chart of this configuration as SVG, as wide and high as a canvas.
function svgOf(config, { clientWidth: width, clientHeight: height }) {
  const clips = [], elements = [], outerClips = [];
  let path = '', clip = '';
  const at = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const shape = attributes => elements.push(`<path d="${path}" ${attributes}${clip}/>`);
  const record = {
    save() { outerClips.push(clip); },
    restore() { clip = outerClips.pop() ?? ''; },
    beginPath() { path = ''; },
    closePath() { path += 'Z'; },
    moveTo(_, x, y) { path += `M${at(x, y)}`; },
    lineTo(_, x, y) { path += `${path ? 'L' : 'M'}${at(x, y)}`; },
    rect(_, x, y, w, h) { path += `M${at(x, y)}h${w}v${h}h${-w}Z`; },
    arc(_, x, y, r) { path += `M${at(x - r, y)}a${r} ${r} 0 0 1 ${2 * r} 0a${r} ${r} 0 0 1 ${-2 * r} 0`; },
    fill({ fillStyle }) { shape(paint('fill', fillStyle)); },
    stroke(context) {
      shape(`fill="none" ${paint('stroke', context.strokeStyle)} stroke-width="${context.lineWidth}" ` +
        `stroke-dasharray="${context.getLineDash().join(' ')}"`);
    },
    clip() {
      clips.push(`<clipPath id="c${clips.length}"><path d="${path}"${clip}/></clipPath>`);
      clip = ` clip-path="url(#c${clips.length - 1})"`;
    },
    fillText(context, text, x, y) { elements.push(textElement(context, text, x, y)); },
  };
  // segment: keeps Chart.js from drawing lines by Path2D, which would not be recorded.
  const { plugins } = config.options;
  const legend = { display: !plugins.extras?.names && config.data.datasets.length > 1 };  // the page's own is no part of it
  const options = { ...config.options, responsive: false, devicePixelRatio: 1, segment: {}, plugins: { ...plugins, legend } };
  new Chart(recordingCanvas(width, height, record), { ...config, options }).destroy();
  const size = `viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"`;
  const back = `<defs>${clips.join('')}</defs><rect width="100%" height="100%" fill="${css('card')}"/>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${back}${elements.join('\n')}</svg>\n`;
}
