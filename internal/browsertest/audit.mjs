// Opens pages in Chromium as the test asks on its input, and says on its output what is
// wrong with each: what axe finds, what the console says, what the content policy refuses,
// what asks another host.
const axe = readFileSync(require.resolve('axe-core'), 'utf8');

const zoom = ask.zoom || 1;
const found = [];
for (const theme of ask.themes) {
  for (const width of ask.widths) {
    const context = await browser.newContext({
      viewport: { width: Math.round(width / zoom), height: Math.round(900 / zoom) }, deviceScaleFactor: zoom,
      colorScheme: theme, javaScriptEnabled: ask.javascript, reducedMotion: 'reduce', timezoneId: 'UTC', ignoreHTTPSErrors: Boolean(ask.anyAuthority),
    });
    if (ask.cookies) await context.addCookies(ask.cookies);
    let at = '';
    const note = (what) => found.push({ page: at, theme, width, what });
    const page = await watch(context, note);
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
        const cut = await page.evaluate(() => [...document.querySelectorAll('body *')].filter((e) => {
          const style = getComputedStyle(e);
          return ['hidden', 'clip'].includes(style.overflowX) && e.scrollWidth > e.clientWidth + 1 && !e.closest('.hide, .line, svg, thead, progress, input, textarea, select');
        }).map((e) => `${e.tagName} ${e.className} ${e.scrollWidth} in ${e.clientWidth}`));
        for (const c of cut.slice(0, 3)) note('what is wider than its box is cut off: ' + c);
        const small = await page.evaluate(() => [...document.querySelectorAll('button, input:not([type=hidden]), select, summary, nav a, a.btn, a.row')]
          .map((e) => [e, e.getBoundingClientRect()]).filter(([, r]) => r.width > 0 && (r.height < 23.5 || r.width < 23.5) )
          .filter(([e]) => e.type !== 'checkbox').map(([e, r]) => `${e.outerHTML.slice(0, 80)} ${r.width.toFixed(0)}x${r.height.toFixed(0)}`));
        for (const s of small.slice(0, 3)) note('a target below 24 px: ' + s);
      }
      const odd = await page.evaluate(() => [...document.links].filter((a) => !/^https?:$/.test(a.protocol)).map((a) => a.href));
      for (const href of odd) note('a link to ' + href);
      if (await page.evaluate(() => window.evil !== undefined)) note('a script of the text ran');
      if (ask.dir) await page.screenshot({ path: `${ask.dir}/${one.name}-${width}-${theme}.png`, fullPage: true });
    }
    await context.close();
  }
}
await browser.close();
process.stdout.write(JSON.stringify(found));
