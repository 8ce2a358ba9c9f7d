// What the client is checked for against a real daemon, in Node and in a browser alike.
// test/e2e starts the daemon, and beside it an API that receives the messages and that
// can be asked, over /control, to kill the daemon and to tell what arrived.
import { connect, RedriveError } from "../redrive.js";

/** Fails with what was expected. */
export function same(got, want, what) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
  if (a !== b) throw new Error(`${what}: ${String(a).slice(0, 500)}, want ${String(b).slice(0, 500)}`);
}

/** Waits until a check holds. */
export async function holds(what, check, limit = 20_000) {
  for (const end = Date.now() + limit; Date.now() < end; await new Promise((r) => setTimeout(r, 10))) {
    if (await check()) return;
  }
  throw new Error(`not within ${limit} ms: ${what}`);
}

/** The error of a promise. */
async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

/** A storage that ends with the test. */
function memory() {
  const items = new Map();
  return { items, getItem: (k) => items.get(k) ?? null, setItem: (k, v) => void items.set(k, v), removeItem: (k) => void items.delete(k) };
}

export class World {
  #clients = [];

  /** @param {{url: string, token: string, api: string, sameOrigin: boolean, label: string}} env */
  constructor(env) {
    Object.assign(this, env);
  }

  /** Does something to the daemon: kill, start or restart. */
  async control(what) {
    const response = await fetch(`${this.api}/control/${what}`, { method: "POST" });
    if (!response.ok) throw new Error(`${what}: ${response.status}`);
  }

  /** The ids under which each text that begins with the label arrived. */
  async arrived(label) {
    return (await fetch(`${this.api}/arrived?label=${encodeURIComponent(label)}`)).json();
  }

  connect(options = {}) {
    const results = [];
    const client = connect({ url: this.url, token: this.token, maxBackoff: 200, onResult: (r) => void results.push(r), ...options });
    this.#clients.push(client);
    return { client, results };
  }

  /** Runs a check, and closes what it left open. */
  async run(check, label) {
    try {
      await check(this, label);
    } finally {
      for (const client of this.#clients.splice(0)) client.close();
    }
  }

  /** Every text arrived under one id: it was published once, however often it was delivered. */
  async once(label, n) {
    const arrived = await this.arrived(label);
    same(Object.keys(arrived).length, n, `texts of ${label} that arrived`);
    for (const [text, ids] of Object.entries(arrived)) same(ids.length, 1, `ids of ${text}`);
  }
}

/** The results are those of n messages, in the order of their numbers, each once. */
function complete(results, n) {
  same(results.map((r) => r.number), Array.from({ length: n }, (_, i) => i + 1), "numbers of results");
  same(new Set(results.map((r) => r.seq)).size, n, "messages with a result");
}

const message = (label, n) => ({ queue: "chat", body: { text: `${label}-${n}` } });

/** What is checked, by name. Each is given a world and a label of its own. */
export const checks = {
  "publish, acknowledgement, result": async (w, label) => {
    const { client, results } = w.connect();
    const sent = Array.from({ length: 300 }, (_, i) => client.publish(message(label, i)));
    for (const accepted of await Promise.all(sent)) same(accepted, { duplicate: false }, "accepted");
    const result = await client.call({ ...message(label, 300), kind: "chat.said", key: "k", headers: { "x-one": "1" } });
    same([result.outcome, result.status, result.body], ["done", 200, { echo: { text: `${label}-300` } }], "result of a call");
    await holds("every result", () => results.length === 301);
    complete(results, 301);
    await w.once(label, 301);
    await client.bye();
    same(client.connected, false, "connected");
    same((await failure(client.publish(message(label, 301)))).code, "closed", "code");
  },

  "bodies as they are": async (w, label) => {
    const { client } = w.connect();
    const bytes = Uint8Array.from({ length: 40_000 }, (_, i) => (i * 7) % 256);
    same(Array.from((await client.call({ queue: "mirror", body: bytes })).body), Array.from(bytes), "bytes");
    const text = `<b>${label}</b> ü€😀\u2028`;
    const back = await client.call({ queue: "mirror", body: text, contentType: "text/plain; charset=utf-8" });
    same(new TextDecoder().decode(back.body), text, "text");
    same((await client.call({ queue: "mirror", body: { text } })).body, { text }, "JSON");
    same((await client.call({ queue: "mirror", body: null })).body, null, "null");
    const event = { specversion: "1.0", id: label, source: "/test", type: "said", data: { text: "event" } };
    same((await client.call({ queue: "mirror", cloudevent: event })).body, { text: "event" }, "event");
    client.close();
  },

  "what is refused": async (w, label) => {
    const decided = [];
    const { client } = w.connect({ onDecided: (d) => void decided.push(d) });
    const refused = client.publish({ queue: "nowhere", body: 1 });
    const other = client.publish({ ...message(label, 0), id: `${label}-id` });
    const error = await failure(refused);
    same([error instanceof RedriveError, error.code, error.problem.status], [true, "refused", 404], "error");
    await other;
    same(await client.publish({ ...message(label, 0), id: `${label}-id` }), { duplicate: true }, "the same again");
    same((await failure(client.call({ ...message(label, 0), id: `${label}-id` }))).code, "duplicate", "code of a call");
    same((await failure(client.publish({ queue: "chat", body: "ü".repeat(40_000) }))).code, "too_large", "code");
    const early = w.connect(); // not knowing yet how long a frame may be
    const large = failure(early.client.publish({ queue: "chat", body: "ü".repeat(40_000) }));
    await early.client.publish(message(label, 1));
    same((await large).code, "too_large", "code");
    early.client.close();
    same(decided.map((d) => [d.seq, d.id ?? null, d.duplicate, d.error?.code ?? null]),
      [[1, null, false, "refused"], [2, `${label}-id`, false, null], [3, `${label}-id`, true, null], [4, `${label}-id`, true, null]], "decided");
    same((await failure(client.call(message(label, 2), { signal: AbortSignal.abort(new Error("enough")) }))).message, "enough", "signal");
    await holds("it arrives all the same", async () => `${label}-2` in (await w.arrived(label)));
    await w.once(label, 3);
    for (let i = 0; i < 70; i++) await failure(client.publish({ queue: "nowhere" })); // more than may be unconfirmed
    client.close();
  },

  "the server is killed and restarted": async (w, label) => {
    const states = [];
    const { client, results } = w.connect({ onState: ({ connected }) => void states.push(connected) });
    const n = 600;
    const sent = [], restarts = [];
    for (let i = 0; i < n; i++) {
      if (i === 200 || i === 400) restarts.push(w.control("restart"));
      await client.room();
      sent.push(client.publish(message(label, i)));
    }
    await client.flush();
    await Promise.all([...sent, ...restarts]);
    await holds("every result", () => results.length === n);
    complete(results, n);
    await w.once(label, n);
    if (states.filter((connected) => !connected).length < 1) throw new Error("the connection was never lost");
    client.close();
  },

  "a new page goes on with the storage": async (w, label) => {
    const storage = memory();
    const first = w.connect({ storage });
    await first.client.publish(message(label, 0));
    await holds("its result", () => first.results.length === 1);
    await w.control("kill");
    await holds("the connection is lost", () => !first.client.connected);
    const lost = Array.from({ length: 20 }, (_, i) => failure(first.client.publish(message(label, i + 1))));
    same(first.client.pending, 20, "pending");
    first.client.close();
    for (const error of await Promise.all(lost)) same(error.code, "closed", "code");
    await w.control("start");

    // This one is closed while its messages are on their way.
    const decided = [];
    const onDecided = (d) => void decided.push(d);
    const second = w.connect({ storage, onDecided });
    const cut = Array.from({ length: 200 }, (_, i) => second.client.publish(message(label, i + 21)).catch((e) => e));
    await holds("some are accepted", () => decided.length > 0);
    second.client.close();
    await Promise.all(cut);

    const third = w.connect({ storage, onDecided });
    await third.client.flush();
    await third.client.publish(message(label, 221));
    same(decided.filter((d) => d.error).length, 0, "refused");
    await holds("every result", () => first.results.length + second.results.length + third.results.length >= 222);
    const seqs = [...first.results, ...second.results, ...third.results].map((r) => r.seq);
    same(new Set(seqs).size, 222, "messages with a result");
    await w.once(label, 222);
    await third.client.bye();
    same(storage.items.size, 0, "items in the storage of a session that is over");
  },

  "a session that the server does not know": async (w, label) => {
    const storage = memory();
    const first = w.connect({ storage });
    await first.client.publish(message(label, 0));
    await holds("its result", () => first.results.length === 1);
    await w.control("kill");
    await holds("the connection is lost", () => !first.client.connected);
    for (let i = 1; i <= 5; i++) first.client.publish(message(label, i)).catch(() => {});
    first.client.close();
    storage.items.set("redrive", JSON.stringify({ ...JSON.parse(storage.items.get("redrive")), token: "another" }));
    await w.control("start");
    const gaps = [];
    const second = w.connect({ storage, onGap: (gap) => void gaps.push(gap) });
    await second.client.publish(message(label, 6));
    same(gaps, [{ session: true, lost: 0 }], "gaps");
    await holds("every result", () => second.results.length === 6);
    complete(second.results, 6);
    await w.once(label, 7);
    second.client.close();
  },

  "the newer connection wins": async (w, label) => {
    const storage = memory();
    const first = w.connect({ storage });
    await first.client.publish(message(label, 0));
    const second = w.connect({ storage });
    await second.client.publish(message(label, 1));
    same((await first.client.ended).closeCode, 4409, "close code");
    second.client.close();
    await holds("both arrive", async () => Object.keys(await w.arrived(label)).length === 2);
    await w.once(label, 2);
  },

  "a result that is not handled comes again": async (w, label) => {
    const seen = [];
    const storage = memory();
    const first = w.connect({ storage, onResult: async (r) => {
      seen.push(r.number);
      if (seen.length > 1) await new Promise(() => {}); // it takes too long
    } });
    await Promise.all([0, 1, 2].map((i) => first.client.publish(message(label, i))));
    await holds("the second result", () => seen.length === 2);
    first.client.close();
    const second = w.connect({ storage });
    await holds("the others", () => second.results.length === 2);
    same([...seen, ...second.results.map((r) => r.number)], [1, 2, 2, 3], "numbers");
    second.client.close();
  },

  "a result of another message is not taken": async (w, label) => {
    if (!w.sameOrigin) return; // a page of another origin cannot work on a queue
    const post = async (path, body) => {
      const url = new URL(`/v1/${path}`, w.url.replace(/^ws/, "http"));
      const response = await fetch(url, { method: "POST", headers: { authorization: `Bearer ${w.token}`, "content-type": "application/json" }, body: JSON.stringify(body) });
      if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
      return response.json();
    };
    const claim = async (queue) => (await post(`queues/${queue}/claims`, { wait: "20s" })).items[0];
    const done = (queue, { receipt }, body) => post(`queues/${queue}/settlements`, { settlements: [{ receipt, outcome: "done", reply: { body } }] });
    const { client, results } = w.connect();
    let forging = 0;
    for (const [id, other] of [[undefined, "passed"], [undefined, "asked"], [`${label}-chosen`, "asked"]]) {
      const call = client.call({ queue: "asked", id, body: 1 });
      const asked = await claim("asked");
      const forged = { queue: other, id: `${label}-forged-${forging++}`, state: "dead", reason: "exhausted", size: 1, body: "x", reply_to: asked.reply_to };
      same((await post("dead-letters", forged)).imported, 1, "imported");
      await post("plans", { action: "redrive", refs: [`${other}/${forged.id}`] });
      const before = results.length;
      await done(other, await claim(other), { paid: true });
      await holds("the other's result", () => results.length === before + 1);
      await done("asked", asked, { paid: false });
      same((await call).body, { paid: false }, "result");
    }
    client.close();
  },

  "a token that is not good": async (w) => {
    if (!w.sameOrigin) return; // a page of another origin does not learn why
    const { client } = w.connect({ token: "wrong" });
    const pending = failure(client.publish(message("none", 0)));
    const why = await client.ended;
    same([why.code, why.problem.status], ["refused", 401], "why");
    same((await pending).code, "closed", "code");
    let asked = 0;
    const again = w.connect({ token: async () => (asked++ === 0 ? "wrong" : w.token) });
    await again.client.call(message(`${w.label}-again`, 0));
    again.client.close();
  },
};
