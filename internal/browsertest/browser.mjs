// What every script begins with: Chromium, and an eye on all that a page must not do.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const ask = JSON.parse(readFileSync(0, 'utf8'));
const require = createRequire(ask.modules + '/');
const { chromium } = require('playwright-core');
const browser = await chromium.launch({ executablePath: ask.chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });

// watch notes errors of the console, among them what the content policy refuses, dialogs, and requests
// to other hosts. Hostile texts of tests set window.evil if they run.
async function watch(context, note) {
  await context.addInitScript(() => document.addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`)));
  const page = await context.newPage();
  page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') note('console: ' + m.text()); });
  page.on('pageerror', (e) => note('error: ' + e.message));
  page.on('dialog', (d) => { note('dialog: ' + d.message()); d.dismiss(); });
  page.on('popup', (p) => note('popup: ' + p.url()));
  page.on('request', (r) => { if (!r.url().startsWith(ask.base) && !r.url().startsWith('data:')) note('request: ' + r.url()); });
  return page;
}

