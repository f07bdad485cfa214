// Text, elements and tables of a report. What comes from outside becomes text nodes, never markup.

const plural = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;
const fixed = (value, digits) =>
  value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });

// Returns how many digits after the point show three significant ones of a value.
function decimalsFor(value) {
  if (!Number.isFinite(value) || value <= 0 || value >= 100) return 0;
  return Math.min(Math.max(2 - Math.floor(Math.log10(value)), 0), 5);
}

function number(value) {
  if (Number.isInteger(value)) return fixed(value, 0);
  return Math.abs(value) < 1e-4 ? value.toExponential(1) : fixed(value, decimalsFor(Math.abs(value)));
}
const orDash = value => (Number.isFinite(value) ? number(value) : '–');

// Returns an element: el('div.card', ...) is a <div class="card">.
function el(name, ...children) {
  const [tag, ...classes] = name.split('.');
  const out = Object.assign(document.createElement(tag), { className: classes.join(' ') });
  out.append(...children);
  return out;
}

// Returns a button that saves a file. text: returns its contents.
function saveButton(format, name, type, text) {
  const onclick = () => {
    const href = URL.createObjectURL(new Blob([text()], { type }));
    Object.assign(el('a'), { href, download: name.replace(/[^\w.-]+/g, '-') }).click();
  };
  return Object.assign(el('button.save', format), { title: `Save as ${format}`, onclick });
}

// A column of a table. cell: returns the text of an item, or {text or node, note, style}. unit: a note to the name.
const column = (name, cell, unit) => ({ name, unit, cell, style: '' });
// The same for numbers, which are aligned to the right.
const numbers = (name, cell, unit) => ({ ...column(name, item => shown(cell(item)), unit), style: 'n' });
const shown = value => (typeof value === 'number' ? orDash(value) : value ?? '–');

// Returns a table with a row for each item, or '' if there is none. groupOf: returns the heading of an item's group.
function table(about, columns, items, groupOf = () => '') {
  if (!items.length) return '';
  const entry = (tag, content, column) => {
    const { text, node = String(text), note, style = '' } = Object(content) === content ? content : { text: content };
    const className = `${column.style} ${style}`.trim();
    return Object.assign(el(tag, node, note ? el('small', note) : ''), { className });
  };
  const group = text => el('tr.group', el('th', text), Object.assign(el('td'), { colSpan: columns.length - 1 }));
  const body = items.flatMap((item, i) => [
    ...(groupOf(item) && (!i || groupOf(item) !== groupOf(items[i - 1])) ? [group(groupOf(item))] : []),
    el('tr', ...columns.map((column, k) => entry(k ? 'td' : 'th', column.cell(item), column))),
  ]);
  const head = columns.map(column => entry('th', { text: column.name, note: column.unit }, column));
  const out = el('table', el('thead', el('tr', ...head)), el('tbody', ...body));
  return el('div', Object.assign(el('div.scroll', out), { tabIndex: 0, role: 'region', ariaLabel: about }),
    saveButton('LaTeX', `${about}.tex`, 'text/x-tex', () => latexOf(out)));
}

const kLatex = { '–': '--', '−': '$-$', '×': '$\\times$', '÷': '$\\div$', '·': '$\\cdot$', '\\': '\\textbackslash{}',
  '~': '\\~{}', '^': '\\^{}' };
const latexText = text => text.replace(/[&%$#_{}~^\\–−×÷·]/g, symbol => kLatex[symbol] ?? `\\${symbol}`);

// Returns a table of the page as LaTeX: notes in parentheses, the best values bold.
function latexOf({ rows: [head, ...body] }) {
  const entry = ({ firstChild, children: [...notes], className }) => {
    const note = notes.find(({ tagName }) => tagName === 'SMALL');
    const text = latexText(firstChild.textContent + (note ? ` (${note.textContent})` : ''));
    return className.includes('best') ? `\\textbf{${text}}` : text;
  };
  const line = ({ className, cells }) => (className === 'group'
    ? `\\multicolumn{${head.cells.length}}{l}{${entry(cells[0])}}` : [...cells].map(entry).join(' & ')) + ' \\\\';
  const alignment = [...head.cells].map(({ className }) => (className === 'n' ? 'r' : 'l')).join('');
  return [`\\begin{tabular}{${alignment}}`, '\\hline', line(head), '\\hline', ...body.map(line), '\\hline',
    '\\end{tabular}', ''].join('\n');
}
