// A person walks from the dashboard's first page to the report, by ask.mode: mouse, keyboard, nojs or
// phone, and counts what that takes. What a person sees is read from pages; only the wait for the end of a
// plan asks the daemon, so that its page is loaded again once, as a person would who knew the moment.
const found = [], steps = [];
let interactions = 0, keys = 0, pages = 0;
const keyboard = ask.mode === 'keyboard', phone = ask.mode === 'phone';
const context = await browser.newContext({
  viewport: phone ? { width: 360, height: 740 } : { width: 1280, height: 800 }, hasTouch: phone, isMobile: phone,
  javaScriptEnabled: ask.mode !== 'nojs', reducedMotion: 'reduce', timezoneId: 'UTC',
});
const page = await watch(context, (what) => found.push(`${page.url()}: ${what}`));
page.setDefaultTimeout(20_000);
page.on('load', () => { pages++; });

function did(what) { interactions++; steps.push(what); }
async function key(name) { keys++; await page.keyboard.press(name); }

// reach moves the focus by Tab, as far as it takes, the way that the target is.
async function reach(target) {
  await target.waitFor();
  for (let i = 0; i < 300; i++) {
    const where = await target.evaluate((e) => {
      const at = document.activeElement;
      if (at === e) return 'here';
      return at && at.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_PRECEDING ? 'Shift+Tab' : 'Tab';
    });
    if (where === 'here') return;
    await key(where);
  }
  throw new Error(`the focus does not come to ${target} on ${page.url()}`);
}

async function press(target, what) {
  did('press ' + what);
  if (keyboard) { await reach(target); await key('Enter'); }
  else if (phone) await target.tap();
  else await target.click();
}

// follow presses what leads to another page.
async function follow(target, what) {
  const loaded = page.waitForEvent('load');
  await press(target, what);
  await loaded;
  if (phone) {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) found.push(`${page.url()}: it is ${wide} px wider than the phone`);
  }
}

async function write(target, text, what) {
  did(`write ${what}`);
  if (keyboard) await reach(target);
  else if (phone) await target.tap();
  else await target.click();
  await page.keyboard.press('Control+A');
  keys += text.length;
  await page.keyboard.type(text);
}

async function says(...texts) {
  const all = (await page.locator('main').innerText()).replaceAll('\u00a0', ' ');
  for (const text of texts) if (!all.includes(text)) throw new Error(`${page.url()} does not say ${JSON.stringify(text)}:\n${all}`);
}

const link = (name, exact = true) => page.locator('main').getByRole('link', { name, exact });
const button = (name) => page.locator('main').getByRole('button', { name }).first();
const nav = (name) => page.getByRole('navigation').getByRole('link', { name, exact: true });

// ended waits until the plan of this page is at rest, and looks at the page again.
async function ended(state) {
  const id = new URL(page.url()).pathname.split('/').pop();
  for (let i = 0; ; i++) {
    const plan = await (await context.request.get(`${ask.base}/v1/plans/${id}?progress=true`)).json();
    if (plan.state === state && (state === 'stopped' || !(plan.progress?.waiting > 0))) break;
    if (i > 1200 || ['failed', 'cancelled'].includes(plan.state)) throw new Error(`plan ${id} is ${plan.state}, not ${state}: ${JSON.stringify(plan)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  did('load the plan again');
  await page.reload();
  await says(state);
  return id;
}

// redrive starts a redrive of the cause whose page this is.
async function redrive(why) {
  await follow(link('Redrive…'), 'Redrive…');
  await start(why);
}

// start fills in the form of a redrive.
async function start(why) {
  await write(page.getByLabel('At most'), '2000/s', 'the rate');
  await write(page.getByLabel('Why'), why, 'why');
  await follow(button(/^Redrive [0-9,]+$/), 'Redrive');
}

async function toTheCause() {
  await follow(nav('Causes'), 'Causes');
  await follow(page.getByRole('row').filter({ hasText: '422' }).getByRole('link').first(), 'the cause');
}

// mendOne edits a message of those that died again, and sends it.
async function mendOne() {
  await follow(link('Those that died again'), 'those that died again');
  await follow(page.locator('a.row').first(), 'a message');
  await says('422', 'schema_version 2 is required');
  await follow(link('Edit…'), 'Edit…');
  const body = page.getByLabel('Body');
  did('write the version into the body');
  if (keyboard) await reach(body);
  else if (phone) await body.tap();
  else await body.click();
  for (const name of ['Control+Home', 'ArrowRight']) await key(name);
  await page.keyboard.type('"schema_version":2,');
  await follow(button('Show what changes'), 'Show what changes');
  await says('What changes', '"schema_version": 2');
  await follow(button('Save'), 'Save');
  await says('Edited since it was published');
  await follow(button('Redrive'), 'Redrive');
  await ended('done');
}

// repairAll gives all that are left the version, by a rule, and redrives exactly these.
async function repairAll(why) {
  await follow(link('Repair…'), 'Repair…');
  await write(page.getByLabel('Place, or header'), '$.schema_version', 'the place');
  await write(page.getByLabel('Value, name or RE2'), '2', 'the value');
  await follow(button('Show what changes'), 'Show what changes');
  await says('"schema_version": 2');
  await write(page.getByLabel('Why'), why, 'why');
  await follow(button(/^Apply to [0-9,]+$/), 'Apply');
  await ended('done');
  await follow(link('Redrive exactly these…'), 'Redrive exactly these…');
  await start(why);
}

const began = Date.now();
try {
  did('open the dashboard');
  await page.goto(ask.base + '/ui/');
  await says('dead', ask.dead);
  await toTheCause();
  await says('422', 'poison data', 'schema_version');
  await redrive('see INC-812');
  const stopped = await ended('stopped');
  await says("of the canary's 10 died again");
  await mendOne();
  await toTheCause();
  await repairAll('INC-812: they lack the version');
  const done = await ended('done');
  await follow(nav('Ledger'), 'Ledger');
  await says('Nothing is lost');
  await follow(nav('Report'), 'Report');
  const report = await page.locator('main').innerText();
  for (const text of [stopped, done, '422', 'INC-812']) if (!report.includes(text)) throw new Error(`the report lacks ${text}:\n${report}`);
} catch (e) {
  found.push(`${e.message}\n${steps.join(', ')}`);
}
await browser.close();
process.stdout.write(JSON.stringify({ interactions, keys, pages, seconds: (Date.now() - began) / 1000, steps, found }));
