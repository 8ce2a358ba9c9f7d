// The keyboard: letters work outside fields only, and can be switched off. What they press is there to be
// clicked, too.
const ui = new URL('.', document.querySelector('.brand').href).pathname;
const places = { n: ['Now', ''], c: ['Causes', 'causes'], d: ['Dead letters', 'dead'], q: ['Queues', 'queues'], p: ['Plans', 'plans'], l: ['Ledger', 'ledger'], r: ['Report', 'report'], a: ['Audit', 'audit'] };
const OFF = 'redrive-keys-off';
let prefix = 0;

const main = document.getElementById('main');
const text = (e) => e.textContent.trim();
const pressable = () => [...main.querySelectorAll('button:not(:disabled):not([hidden]), a.btn')].filter((e) => e.offsetParent);
const named = (...words) => pressable().find((e) => words.some((w) => text(e).startsWith(w)));
const go = (e) => { if (e) { e.focus(); e.click(); } };

/** Moves to the next row of the page's tables, or the one before. */
function row(step) {
  const all = [...main.querySelectorAll('a.row')].filter((e) => e.offsetParent);
  const at = all.indexOf(document.activeElement);
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
  if (next) { next.focus(); next.scrollIntoView({ block: 'nearest' }); }
}

/** Opens the page behind a button of the row that has the focus, or of the page. */
function act(...words) {
  const here = document.activeElement;
  const target = named(...words);
  if (target) go(target);
  else if (here && here.matches('a.row')) here.click();
}

function copy() {
  const url = new URL(location.href), since = url.searchParams.get('since');
  const ago = since && since.match(/^(\d+)(m|h|d)$/);
  if (ago) url.searchParams.set('since', new Date(Date.now() - ago[1] * { m: 6e4, h: 36e5, d: 864e5 }[ago[2]]).toISOString());
  navigator.clipboard.writeText(url.href).then(() => say('The link is copied.'), () => say(url.href));
}

function element(name, props, ...children) {
  const e = Object.assign(document.createElement(name), props);
  e.append(...children);
  return e;
}

function dialog(title, ...children) {
  const d = element('dialog', { className: 'help' }, element('h2', { textContent: title, id: 'dialog-title' }), ...children,
    element('form', { method: 'dialog' }, element('button', { textContent: 'Close', className: 'main' })));
  d.setAttribute('aria-labelledby', 'dialog-title');
  d.addEventListener('close', () => d.remove());
  document.body.append(d);
  d.showModal();
  return d;
}

function say(words) { dialog('Link', element('p', { textContent: words, className: 'mono' })); }

function help() {
  const list = element('dl', { className: 'pairs' });
  const line = (key, what) => list.append(element('dt', {}, element('kbd', { textContent: key })), element('dd', { textContent: what }));
  for (const [key, [name]] of Object.entries(places)) line('g ' + key, name);
  for (const [key, what] of [['/', 'filter'], ['j k', 'next row, the one before'], ['Enter', 'open the row'], ['r', 'redrive'], ['e', 'edit or repair'], ['a', 'acknowledge'], ['.', 'all that can be done here'],
    ['p', 'pause what is live'], ['t', 'next theme'], ['y', 'copy the link'], ['Esc', 'back'], ['?', 'this help']]) line(key, what);
  const off = element('input', { type: 'checkbox', checked: !!localStorage.getItem(OFF) });
  off.addEventListener('change', () => { if (off.checked) localStorage.setItem(OFF, '1'); else localStorage.removeItem(OFF); });
  dialog('Keys', list, element('p', {}, element('label', { className: 'check' }, off, ' No keys of one letter, but ? and Esc')));
}

function actions() {
  const list = element('ul', { className: 'plain' });
  const d = dialog('What can be done here', list);
  for (const target of pressable().filter((e) => !d.contains(e))) {
    const b = element('button', { textContent: text(target), type: 'button' });
    b.addEventListener('click', () => { d.close(); go(target); });
    list.append(element('li', {}, b));
  }
  if (!list.children.length) list.append(element('li', { textContent: 'Nothing but to look.' }));
}

const keys = {
  '/': () => { const f = main.querySelector('form.filters input:not([type=hidden]), form.filters select'); if (f) f.focus(); },
  j: () => row(1), k: () => row(-1), r: () => act('Redrive', 'Try 10'), e: () => act('Edit', 'Repair'),
  a: () => { const note = document.getElementById('note'); if (note) note.focus(); else act('Acknowledge'); },
  p: () => { const b = document.getElementById('live'); if (b) b.click(); },
  t: () => { const s = document.getElementById('theme'); if (s) { s.selectedIndex = (s.selectedIndex + 1) % s.length; s.form.requestSubmit(); } },
  y: copy, '.': actions,
};

document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing || document.querySelector('dialog[open]')) return;
  const field = e.target.matches('input:not([type=checkbox]), textarea, select');
  if (e.key === 'Escape') {
    if (field) e.target.blur();
    else { const crumbs = [...main.querySelectorAll('.crumb a')]; if (crumbs.length) crumbs.at(-1).click(); else if (history.length > 1) history.back(); }
    return;
  }
  if (field) return;
  if (e.key === '?') { e.preventDefault(); help(); return; }
  if (localStorage.getItem(OFF)) return;
  if (prefix && e.timeStamp - prefix < 1500 && places[e.key]) { prefix = 0; e.preventDefault(); location.href = ui + places[e.key][1]; return; }
  prefix = e.key === 'g' ? e.timeStamp : 0;
  if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
});
