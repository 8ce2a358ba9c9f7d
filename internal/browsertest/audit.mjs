// Opens pages in Chromium as the test asks on its input, and says on its output what is
// wrong with each: what axe finds, what the console says, what the content policy refuses,
// what asks another host.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const ask = JSON.parse(readFileSync(0, 'utf8'));
const require = createRequire(ask.modules + '/');
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core'), 'utf8');

const browser = await chromium.launch({ executablePath: ask.chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
const found = [];
for (const theme of ask.themes) {
  for (const width of ask.widths) {
    const context = await browser.newContext({
      viewport: { width, height: 900 }, colorScheme: theme, javaScriptEnabled: ask.javascript, reducedMotion: 'reduce', timezoneId: 'UTC',
    });
    if (ask.cookies) await context.addCookies(ask.cookies);
    const page = await context.newPage();
    let at = '';
    const note = (what) => found.push({ page: at, theme, width, what });
    page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') note('console: ' + m.text()); });
    page.on('pageerror', (e) => note('error: ' + e.message));
    page.on('dialog', (d) => { note('dialog: ' + d.message()); d.dismiss(); });
    page.on('request', (r) => { if (!r.url().startsWith(ask.base) && !r.url().startsWith('data:')) note('request: ' + r.url()); });
    for (const one of ask.pages) {
      at = one.name;
      const answer = await page.goto(ask.base + one.path, { waitUntil: 'load' });
      if (answer.status() !== (one.status || 200)) note('status ' + answer.status());
      if (one.open) for (const d of await page.locator('details').all()) await d.evaluate((e) => { e.open = true; });
      if (ask.javascript) {
        await page.evaluate(axe);
        const result = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
        for (const v of result.violations) for (const n of v.nodes.slice(0, 3)) note(`axe ${v.id}: ${v.help}: ${n.html.slice(0, 200)} ${(n.any[0] || n.all[0] || n.none[0] || {}).message || ''}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        if (wide > 0) note(`the page is ${wide} px wider than the window`);
        const small = await page.evaluate(() => [...document.querySelectorAll('button, input:not([type=hidden]), select, summary, nav a, a.btn, a.row')]
          .map((e) => [e, e.getBoundingClientRect()]).filter(([, r]) => r.width > 0 && (r.height < 23.5 || r.width < 23.5) )
          .filter(([e]) => e.type !== 'checkbox').map(([e, r]) => `${e.outerHTML.slice(0, 80)} ${r.width.toFixed(0)}x${r.height.toFixed(0)}`));
        for (const s of small.slice(0, 3)) note('a target below 24 px: ' + s);
      }
      if (ask.dir) await page.screenshot({ path: `${ask.dir}/${one.name}-${width}-${theme}.png`, fullPage: true });
    }
    await context.close();
  }
}
await browser.close();
process.stdout.write(JSON.stringify(found));
