// The client against a server that is simulated: its connections break at random, with
// what is on its way either way; now and then it forgets a session. REDRIVE_SEED repeats
// a run's dice.
import { test } from "node:test";
import { connect } from "../redrive.js";
import { holds, same } from "./checks.js";

const seed = Number(process.env.REDRIVE_SEED ?? Math.floor(Math.random() * 2 ** 31));

/** A small generator of numbers in [0, 1) (mulberry32). */
function dice(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The server's side of the protocol, as docs/websocket.md has it. */
class Server {
  sessions = new Map();
  accepted = []; // texts, by whatever session
  broken = []; // rules of the protocol
  calm = false;

  constructor(random) {
    this.random = random;
    const server = this;
    this.WebSocket = class {
      readyState = 0;
      protocol = "redrive.v1.json";

      constructor() {
        setImmediate(() => (server.happens(0.1) ? this.fail() : this.accept()));
      }

      accept() {
        if (this.readyState !== 0) return;
        this.readyState = 1;
        this.onopen?.();
      }

      send(text) {
        if (this.readyState !== 1) return;
        setImmediate(() => this.readyState === 1 && (server.happens(0.01) ? this.fail() : server.frame(this, JSON.parse(text))));
      }

      push(frame) {
        setImmediate(() => this.readyState === 1 && (server.happens(0.01) ? this.fail() : this.onmessage?.({ data: JSON.stringify(frame) })));
      }

      fail(code = 1006) {
        if (this.readyState === 3) return;
        this.readyState = 3;
        this.onclose?.({ code, reason: "" });
      }

      close() {
        this.readyState = 3;
      }
    };
  }

  happens(probability) {
    return !this.calm && this.random() < probability;
  }

  breach(socket, what) {
    this.broken.push(what);
    socket.fail(4400);
  }

  frame(socket, f) {
    const s = socket.session;
    if (!s && f.type !== "hello") return this.breach(socket, `${f.type} before the welcome`);
    if (s && s.socket !== socket) return socket.fail(4409);
    switch (f.type) {
      case "hello":
        return this.hello(socket, f);
      case "publish":
        return this.publish(socket, s, f);
      case "seen":
        s.errors = s.errors.filter((e) => e.seq > f.seq);
        return;
      case "result_ack":
        if (f.number > s.results.length) return this.breach(socket, `result ${f.number} was never pushed`);
        s.acked = Math.max(s.acked, f.number);
        return;
      default:
        return this.breach(socket, f.type);
    }
  }

  hello(socket, f) {
    let s = this.sessions.get(f.session);
    if (f.session && !s) socket.push({ type: "gap", reason: "session_unknown" });
    const resumed = Boolean(s);
    if (s) {
      if (f.attempt <= s.attempt) return this.breach(socket, `attempt ${f.attempt} after ${s.attempt}`);
      if (f.seen > s.seq || f.result > s.results.length) return this.breach(socket, "a hello from the future");
      s.errors = s.errors.filter((e) => e.seq > f.seen);
      s.acked = Math.max(s.acked, f.result);
      s.socket.readyState = 3;
    } else {
      s = { id: String(this.random()), token: "t", seq: 0, errors: [], results: [], acked: 0 };
      this.sessions.set(s.id, s);
    }
    Object.assign(s, { attempt: f.attempt, socket });
    socket.session = s;
    s.limit = s.seq + 16;
    socket.push({ type: "welcome", session: s.id, token: s.token, resumed, seq: s.seq, limit: s.limit, result: s.acked, errors: s.errors, max_frame: 1000, idle: 75 });
    s.results.slice(s.acked).forEach((r) => socket.push(r));
  }

  publish(socket, s, f) {
    if (f.seq > s.limit) return this.breach(socket, `seq ${f.seq} is above the limit ${s.limit}`);
    if (f.seq > s.seq + 1) return this.breach(socket, `seq ${f.seq} follows ${s.seq}`);
    if (f.seq === s.seq + 1) {
      s.seq = f.seq;
      if (f.queue === "q") {
        this.accepted.push(f.body);
        const result = { type: "result", number: s.results.length + 1, seq: f.seq, queue: "q", id: "i", outcome: "done", body: f.body };
        s.results.push(result);
        s.socket.push(result); // before the ack, as may be
      } else {
        s.errors.push({ seq: f.seq, error: { type: "urn:redrive:problem:queue-not-found", title: "no such queue", status: 404 } });
      }
    }
    if (this.random() < 0.5) s.limit = Math.max(s.limit, s.seq + Math.floor(this.random() * 16));
    else setTimeout(() => this.credit(s), 1);
    s.socket.push({ type: "ack", seq: s.seq, limit: s.limit, errors: s.errors });
    if (s.limit === s.seq) setTimeout(() => this.credit(s), 1);
  }

  credit(s) {
    s.limit = Math.max(s.limit, s.seq + 16);
    s.socket.push({ type: "credit", limit: s.limit });
  }
}

/** Publishes messages over a client that is replaced by another one now and then. */
async function simulate(random, forgets) {
  const server = new Server(random);
  const storage = new Map();
  const results = [], decided = [], gaps = [];
  const again = []; // results that came twice to one client
  const begin = (last = 0) => connect({
    url: "ws://127.0.0.1:1/v1/ws", WebSocket: server.WebSocket, maxBackoff: 1, key: "s",
    storage: { getItem: (k) => storage.get(k) ?? null, setItem: (k, v) => storage.set(k, v), removeItem: (k) => storage.delete(k) },
    onDecided: (d) => void decided.push(d), onGap: (g) => void gaps.push(g),
    onResult: (r) => {
      if (random() < 0.02) throw new Error("not now");
      if (r.number <= last) again.push(r.number);
      last = r.number;
      results.push(r);
    },
  });
  let client = begin();
  const n = 150;
  for (let i = 0; i < n; i++) {
    const where = i % 10 === 9 ? "nowhere" : "q";
    client.publish({ queue: where, body: i }).catch(() => {});
    if (random() < 0.3) await new Promise((r) => setTimeout(r, 1));
    if (random() < 0.03) {
      client.close();
      client = begin();
    }
    if (forgets && random() < 0.02) for (const s of server.sessions.values()) s.socket.fail(), server.sessions.delete(s.id);
  }
  server.calm = true;
  await client.flush();
  const texts = new Set(server.accepted);
  same(server.broken, [], "rules that were broken");
  same(texts.size, n * 0.9, "messages that were accepted");
  if (!forgets) {
    same(server.accepted.length, n * 0.9, "messages that were accepted, each once");
    same(server.accepted, [...server.accepted].sort((a, b) => a - b), "their order");
    await holds("every result", () => new Set(results.map((r) => r.number)).size === n * 0.9, 5000);
    same([...new Set(results.map((r) => r.body))], server.accepted, "the order of results");
    same(again, [], "results that came again");
  } else if (gaps.some((g) => !g.session)) throw new Error("a gap of another kind");
  same([...new Set(decided.filter((d) => d.error).map((d) => d.queue))], ["nowhere"], "what was refused");
  client.close();
}

for (const forgets of [false, true]) {
  test(`connections break${forgets ? ", and sessions are forgotten" : ""}`, { timeout: 60_000 }, async (t) => {
    t.diagnostic(`REDRIVE_SEED=${seed}`);
    t.mock.method(console, "error", () => {}); // where the client tells of results that were not handled
    await Promise.all(Array.from({ length: 30 }, (_, i) => simulate(dice(seed + i), forgets)));
  });
}
