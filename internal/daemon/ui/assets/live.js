// Keeps a page up to date: the parts of it that changed come as HTML, made by the daemon once for all who
// look at it. A part that is in use stays as it is until it is left, or its reader asks.
const policy = window.trustedTypes ? trustedTypes.createPolicy('redrive', { createHTML: (html) => html }) : { createHTML: (html) => html };
const link = document.getElementById('live');
const main = document.getElementById('main');
const asOf = document.getElementById('as-of');
const skew = Date.now() - Date.parse(asOf.dateTime);
const STALE = 5000, POLL = 5000;

/** Writes a length of time in milliseconds as the daemon does. */
export function duration(ms) {
  const s = Math.floor(Math.abs(ms) / 1000), two = (n) => String(n).padStart(2, '0');
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)}h${two(Math.floor(s % 3600 / 60))}m`;
  return `${Math.floor(s / 86400)} days`;
}

function ages() {
  const now = Date.now() - skew;
  for (const t of document.querySelectorAll('time[data-ago]')) {
    const age = now - Date.parse(t.dateTime);
    const text = age < -999 ? `in ${duration(age)}` : age < 1000 ? 'now' : `${duration(age)} ago`;
    if (t.textContent !== text) t.textContent = text;
  }
}

if (link) {
  const button = document.createElement('button');
  button.type = 'button';
  button.id = 'live';
  button.className = 'live';
  const stream = link.dataset.stream;
  link.replaceWith(button);
  const changed = document.createElement('button');
  changed.type = 'button';
  changed.className = 'changed';
  changed.hidden = true;
  main.before(changed);

  let source = null, broken = 0, last = Date.now(), paused = false, trouble = '', retry = 0, polls = 0, order = null;
  const waiting = new Map();

  const rows = () => [...document.querySelectorAll('tr[data-live]')].map((r) => r.id);
  const selected = (e) => { const s = getSelection(); return s && !s.isCollapsed && s.containsNode(e, true); };
  const dirty = (e) => [...e.querySelectorAll('input:not([type=hidden]), textarea, select')].some((f) => f.type === 'checkbox' ? f.checked !== f.defaultChecked : f.tagName !== 'SELECT' && f.value !== f.defaultValue);
  const busy = (e) => e.contains(document.activeElement) || e.querySelector('details[open]') || dirty(e) || selected(e) || (e.tagName !== 'TR' && e.querySelector('table, button') && e.matches(':hover'));

  /** Puts a part in, unless it is in use. */
  function put(id, html, force) {
    const old = document.getElementById(id);
    if (!old || !old.hasAttribute('data-live')) return;
    if (!force && busy(old)) { waiting.set(id, html); return; }
    waiting.delete(id);
    const t = document.createElement('template');
    t.innerHTML = policy.createHTML(html);
    const fresh = t.content.firstElementChild;
    const token = document.querySelector('input[name=form]');
    for (const f of fresh.querySelectorAll('input[name=form]')) f.value = token ? token.value : '';
    old.replaceWith(fresh);
  }

  function retryWaiting(force) {
    for (const [id, html] of [...waiting]) put(id, html, force);
    const here = rows();
    const moved = order ? order.filter((id, i) => here[i] !== id).length + here.filter((id) => !order.includes(id)).length : 0;
    const n = waiting.size + moved;
    changed.hidden = n === 0;
    changed.textContent = `${n} changed · show`;
  }
  changed.addEventListener('click', () => {
    const here = rows();
    if (order && (order.length !== here.length || order.some((id, i) => here[i] !== id))) { location.reload(); return; }
    retryWaiting(true);
  });

  function take(e) {
    last = Date.now();
    broken = 0;
    const part = JSON.parse(e.data);
    if (part.key === 'trouble') trouble = part.removed ? '' : part.item;
    else if (part.key === 'order') order = part.removed ? order : part.item;
    else if (!part.removed) put(part.key, part.item);
    if (part.key !== 'trouble' && !part.removed) seen();
    later();
  }
  function seen() {
    const at = new Date(Date.now() - skew);
    asOf.dateTime = at.toISOString();
    asOf.textContent = at.toISOString().slice(0, 19).replace('T', ' ') + ' UTC';
  }
  let asked = 0;
  function later() { if (!asked) asked = setTimeout(() => { asked = 0; retryWaiting(); ages(); show(); }, 0); }

  function open() {
    clearTimeout(retry);
    if (source || paused || document.hidden) return;
    source = new EventSource(stream);
    source.addEventListener('part', take);
    source.addEventListener('beat', () => { last = Date.now(); broken = 0; if (!trouble) seen(); show(); });
    source.addEventListener('error', () => {
      close();
      broken++;
      retry = setTimeout(open, Math.min(30000, 500 * 2 ** broken) * (0.75 + Math.random() / 2));
      show();
    });
  }
  function close() { if (source) { source.close(); source = null; } clearTimeout(retry); }

  /** Loads the whole page in place of a stream that breaks. */
  async function poll() {
    if (broken < 2 || paused || document.hidden || Date.now() - polls < POLL) return;
    polls = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: 'text/html' }, redirect: 'manual' });
      if (answer.type === 'opaqueredirect') { trouble = 'you are logged out'; close(); paused = true; show(); return; }
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(policy.createHTML(await answer.text()), 'text/html');
      for (const part of page.querySelectorAll('#main [data-live]')) put(part.id, part.outerHTML);
      order = [...page.querySelectorAll('tr[data-live]')].map((r) => r.id);
      last = Date.now();
      trouble = '';
      seen();
      retryWaiting();
    } catch { /* it is away: the page says since when */ }
  }

  function show() {
    const age = Date.now() - last, stale = !paused && (age > STALE || trouble !== '');
    document.body.classList.toggle('stale', stale || paused);
    const text = paused ? (trouble || 'paused') : trouble ? `stale: ${trouble}` : stale ? `stale ${duration(age)}` : broken >= 2 ? 'live, every 5 s' : 'live';
    if (button.textContent !== text) button.textContent = text;
    button.dataset.state = paused ? 'paused' : stale ? 'stale' : 'live';
    button.setAttribute('aria-pressed', String(paused));
    button.title = paused ? 'Go on (p)' : 'Pause (p)';
  }
  function pause() {
    paused = !paused;
    trouble = '';
    if (paused) close();
    else { last = Date.now(); open(); }
    show();
  }
  button.addEventListener('click', pause);
  document.addEventListener('visibilitychange', () => { if (document.hidden) close(); else if (!paused) { last = Math.max(last, Date.now() - STALE); open(); } });
  setInterval(() => { retryWaiting(); show(); poll(); }, 1000);
  addEventListener('pagehide', close);
  open();
  show();
}
setInterval(ages, 1000);
