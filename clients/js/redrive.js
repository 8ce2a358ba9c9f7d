// The JavaScript client of Redrive's WebSocket gateway: one module without dependencies,
// for browsers and Node. What a promise of publish() was fulfilled for is durable, and its
// result comes, however often the connection, the server, the page or all of them went
// away in between. The protocol is described in docs/websocket.md, the types and options
// in redrive.d.ts.

const SUBPROTOCOL = "redrive.v1.json";
const BEARER = "redrive.bearer."; // begins a subprotocol that carries a token

const FIRST_BACKOFF = 100; // times are in ms
const MAX_BACKOFF = 30_000;
const DIAL_TIMEOUT = 15_000;
const WELCOME_TIMEOUT = 45_000; // the server gives its store 30 s
const PING_INTERVAL = 25_000;
const PING_PATIENCE = 15_000;
const CLOSE_PATIENCE = 1_000;
const PROBE_TIMEOUT = 5_000;
const OUTBOX = 1_000; // messages that are not decided
const MAX_FRAME = 1 << 20; // bytes, as long as no server said otherwise

// Closes after which it is of no use to connect again.
const FINAL = new Set([1000, 1003, 1007, 1009, 4400, 4401, 4403, 4409]);
// Answers to a handshake that may be different the next time, or are about the probe.
const PASSING = new Set([400, 408, 426, 429]);

/** Why something failed; code tells it to programs. */
export class RedriveError extends Error {
  /**
   * @param {import("./redrive.js").ErrorCode} code
   * @param {string} message
   * @param {{problem?: import("./redrive.js").Problem, closeCode?: number}} [more]
   */
  constructor(code, message, more) {
    super(message);
    this.name = "RedriveError";
    this.code = code;
    this.problem = more?.problem;
    this.closeCode = more?.closeCode;
  }
}

/**
 * Begins a session, or goes on with the one in the storage.
 * @param {import("./redrive.js").Options} [options]
 */
export const connect = (options) => new Client(options);

/** A message on its way. */
class Ticket {
  /** @param {string} fields of its frame, as JSON without the braces */
  constructor(fields) {
    this.fields = fields;
    this.seq = 0;
    this.refusal = undefined;
    this.decided = deferred();
    this.call = undefined; // who waits for the result
  }
}

/** The client's side of the protocol: fed with frames, it tells what to send. */
class Session {
  id = "";
  token = "";
  attempt = 0; // counts connections
  acked = 0; // the highest number that is decided
  handled = 0; // the highest result that was handled
  base = 0; // what is added to a number to get one that no later session uses again
  maxFrame = MAX_FRAME;
  tickets = []; // not decided, in order of their numbers: acked+1, acked+2, ...
  arrived = 0; // the highest result that came
  generation = 0; // counts sessions
  limit = 0; // the highest number that may be sent
  #sent = 0; // the highest number that was sent over this connection
  #open = false; // the welcome has come
  #resume = false; // the hello asked for a session
  #lost = false; // and was informed that it is gone
  #errored = false; // errors came, which the server wants confirmed
  #seen = 0;
  #confirmed = 0; // the highest result that the server knows to be handled

  constructor(window) {
    this.window = window;
  }

  get open() {
    return this.#open;
  }

  /** What is to be kept of it. */
  head() {
    const { id, token, attempt, acked, handled, base, maxFrame } = this;
    return { id, token, attempt, acked, handled, base, maxFrame };
  }

  /** Goes on with what was kept; tickets that came meanwhile follow. */
  restore(head, tickets) {
    Object.assign(this, head);
    this.arrived = this.handled;
    this.tickets.unshift(...tickets);
    this.#number();
  }

  hello() {
    this.attempt++;
    const frame = { type: "hello", attempt: this.attempt, window: this.window };
    this.#resume = this.id !== "";
    if (this.#resume) {
      Object.assign(frame, { session: this.id, token: this.token, seen: this.acked, result: this.handled });
    }
    this.#lost = this.#errored = false;
    this.limit = this.#sent = 0;
    this.#seen = this.acked;
    this.#confirmed = this.handled;
    return JSON.stringify(frame);
  }

  /** The connection has ended. */
  closed() {
    this.#open = false;
  }

  add(ticket) {
    ticket.seq = this.acked + this.tickets.length + 1;
    this.tickets.push(ticket);
  }

  room() {
    return this.#open && this.acked + this.tickets.length < this.limit;
  }

  /** The frames to send. */
  due() {
    const frames = [];
    if (!this.#open) return frames;
    if (this.#errored && this.#seen < this.acked) {
      frames.push(`{"type":"seen","seq":${this.acked}}`);
      this.#seen = this.acked;
      this.#errored = false;
    }
    if (this.#confirmed < this.handled) {
      frames.push(`{"type":"result_ack","number":${this.handled}}`);
      this.#confirmed = this.handled;
    }
    const last = Math.min(this.acked + this.tickets.length, this.limit);
    while (this.#sent < last) frames.push(this.#publish(this.tickets[++this.#sent - this.acked - 1]));
    return frames;
  }

  #publish(ticket) {
    const frame = `{"type":"publish","seq":${ticket.seq},${ticket.fields}}`; // the type stands first: the server looks for it there
    ticket.refusal = longer(frame, this.maxFrame) ? tooLarge(this.maxFrame) : undefined;
    if (!ticket.refusal) return frame;
    return `{"type":"publish","seq":${ticket.seq},"queue":""}`; // refused by the server: no number may be left out
  }

  /** Takes a frame of the server; tells what it means for the application. */
  take(text) {
    const f = JSON.parse(text);
    const news = { decided: [] };
    switch (f.type) {
      case "welcome":
        this.#welcome(f, news);
        break;
      case "ack":
        this.limit = Math.max(this.limit, f.limit);
        this.#decide(f, news);
        break;
      case "credit":
        this.limit = Math.max(this.limit, f.limit);
        break;
      case "slow_down":
        news.slowDown = { queue: f.queue, level: f.level, retryAfter: f.retry_after };
        break;
      case "gap":
        news.gap = { session: f.reason === "session_unknown", lost: f.lost ?? 0 };
        this.#lost ||= news.gap.session;
        break;
      case "result":
        if (f.number <= this.arrived) break;
        this.arrived = f.number;
        news.result = resultOf(f);
    }
    return news;
  }

  #welcome(f, news) {
    if (this.#resume && !f.resumed && !this.#lost) {
      throw new RedriveError("protocol", "the server began a new session without saying that the old one is lost");
    }
    news.welcomed = this.#open = true;
    this.maxFrame = f.max_frame;
    if (this.id !== f.session) {
      this.base += this.acked;
      this.acked = this.handled = this.arrived = this.#seen = this.#confirmed = 0;
      this.generation++;
      this.#number();
    }
    this.id = f.session;
    this.token = f.token;
    this.limit = f.limit;
    this.#decide(f, news);
    this.#sent = f.seq;
  }

  #number() {
    this.tickets.forEach((ticket, i) => (ticket.seq = this.acked + 1 + i));
  }

  /** Every number up to f.seq is decided. */
  #decide(f, news) {
    for (const { seq, error } of f.errors ?? []) {
      this.#errored = true;
      const ticket = this.tickets[seq - this.acked - 1];
      if (ticket) ticket.refusal ??= refusalOf(error);
    }
    if (f.seq <= this.acked) return;
    news.decided = this.tickets.splice(0, f.seq - this.acked);
    this.acked = f.seq;
    this.#sent = Math.max(this.#sent, f.seq);
  }
}

/** Keeps the session and the messages that are not decided in a storage. */
class Outbox {
  constructor(storage, key) {
    this.storage = storage;
    this.key = key;
  }

  /** The session that was kept and its tickets, if there is one. */
  load() {
    const head = parsed(this.storage?.getItem(this.key));
    const last = head ? head.base + head.acked : Infinity;
    const kept = [];
    for (let slot = 0; this.storage && slot < OUTBOX; slot++) {
      const text = this.storage.getItem(this.#slot(slot));
      if (!text) continue;
      const space = text.indexOf(" ");
      const n = Number(text.slice(0, space));
      if (n > last) kept.push({ n, fields: text.slice(space + 1) });
      else this.storage.removeItem(this.#slot(slot)); // decided, when the page ended
    }
    if (!head) return undefined;
    kept.sort((a, b) => a.n - b.n);
    const first = kept[0]?.n ?? last + 1; // beyond last+1 if the newest state of the head was not kept
    head.acked = first - 1 - head.base;
    const whole = kept.filter(({ n }, i) => n === first + i); // what stands behind a hole was tampered with
    return { head, tickets: whole.map(({ fields }) => new Ticket(fields)) };
  }

  #slot(n) {
    return `${this.key}.${n % OUTBOX}`;
  }

  put(n, ticket) {
    this.storage?.setItem(this.#slot(n), `${n} ${ticket.fields}`);
  }

  remove(n) {
    this.storage?.removeItem(this.#slot(n));
  }

  save(head) {
    try {
      this.storage?.setItem(this.key, JSON.stringify(head));
    } catch (error) { // there is no room: what is decided by the next time is heard of again then
      report(error);
    }
  }

  clear() {
    this.storage?.removeItem(this.key);
    for (let slot = 0; this.storage && slot < OUTBOX; slot++) this.remove(slot);
  }
}

/** A session with a daemon, which keeps itself connected until it is closed. */
export class Client {
  #o;
  #session;
  #outbox;
  #socket; // set when it is open
  #results = []; // that came and are not handled
  #calls = new Map(); // by number: accepted, the result has not come
  #handling = false;
  #flushing = false;
  #changed = deferred(); // fulfilled and made anew when something changed
  #hurry = () => {}; // ends a pause
  #drop = () => {}; // ends the connection
  #bye = false;
  #said = false; // bye, over this connection
  #ended = deferred();
  #why; // why it ended
  #loaded = false;

  /** @param {import("./redrive.js").Options} [options] */
  constructor(options = {}) {
    this.#o = { key: "redrive", window: 64, maxBackoff: MAX_BACKOFF, WebSocket: globalThis.WebSocket, ...options };
    if (!this.#o.WebSocket) {
      throw new TypeError("there is no WebSocket here: pass one as an option, or start Node 20 with --experimental-websocket");
    }
    this.#o.url = socketURL(this.#o.url);
    this.#session = new Session(this.#o.window);
    this.#outbox = new Outbox(this.#o.storage, this.#o.key);
    this.#run();
  }

  /** Whether the connection is there. */
  get connected() {
    return this.#session.open;
  }

  /** How many messages are not decided yet. */
  get pending() {
    return this.#session.tickets.length;
  }

  /** Fulfilled with the reason when the client has ended. */
  get ended() {
    return this.#ended.promise;
  }

  /** Publishes a message; fulfilled when it is durable. */
  async publish(message, { signal } = {}) {
    return until(this.#add(message).decided.promise, signal);
  }

  /** Publishes a message and waits for its result. */
  async call(message, { signal } = {}) {
    if (message.result === false) throw new TypeError("a call wants a result");
    if (!message.id && !message.cloudevent) message = { ...message, id: newID() }; // by which its result is known
    const id = message.cloudevent ? await eventID(message.cloudevent) : message.id;
    const call = Object.assign(deferred(), { queue: message.queue, id });
    const { duplicate } = await until(this.#add(message, call).decided.promise, signal);
    if (duplicate) throw new RedriveError("duplicate", "the message was accepted before: its result goes to whoever published it first");
    return until(call.promise, signal);
  }

  /** Waits until another message would be sent at once. */
  async room({ signal } = {}) {
    await this.#when(() => this.#session.room(), signal);
  }

  /** Waits until every message is decided. */
  async flush({ signal } = {}) {
    await this.#when(() => this.#loaded && this.pending === 0, signal);
  }

  /** Ends the session for good: results that are still to come are given up. */
  async bye({ signal } = {}) {
    await this.flush({ signal });
    this.#bye = true;
    this.#poke();
    await until(this.#ended.promise, signal);
  }

  /** Ends the client. The session goes on when there is a storage. */
  close() {
    this.#end(new RedriveError("closed", "the client is closed"));
  }

  async #when(check, signal) {
    while (!check()) {
      if (this.#why) throw this.#why;
      await until(Promise.race([this.#changed.promise, this.#ended.promise]), signal);
    }
  }

  #add(message, call) {
    if (this.#why || this.#bye) throw new RedriveError("closed", "the client is closed");
    const s = this.#session;
    if (s.tickets.length >= OUTBOX) throw new RedriveError("backlogged", `${OUTBOX} messages wait: wait for room()`);
    const ticket = new Ticket(fieldsOf(message));
    if (longer(ticket.fields, s.maxFrame - 64)) throw tooLarge(s.maxFrame);
    ticket.call = call;
    if (this.#loaded) this.#put(ticket, s.acked + s.tickets.length + 1);
    s.add(ticket);
    this.#poke();
    return ticket;
  }

  #put(ticket, seq) {
    try {
      this.#outbox.put(this.#session.base + seq, ticket);
    } catch (error) {
      throw new RedriveError("storage", `the message cannot be kept: ${error.message}`);
    }
  }

  async #run() {
    try {
      await this.#load();
      for (let n = 0; !this.#why; n++) {
        const { welcomed, error, final } = await this.#connection();
        if (this.#why) return;
        if (final) return this.#end(this.#bye && error.closeCode === 1000 ? new RedriveError("closed", "the session is over") : error);
        if (welcomed) n = 0;
        await this.#pause(n);
      }
    } catch (error) {
      this.#end(error);
    }
  }

  /** Takes the storage, which only one page at a time may use. */
  async #load() {
    const { storage, key } = this.#o;
    if (storage && storage === globalThis.window?.localStorage && globalThis.navigator?.locks) {
      await new Promise((resolve, reject) => {
        navigator.locks.request(`redrive:${key}`, () => {
          resolve();
          return this.#ended.promise;
        }).catch(reject);
      });
    }
    if (this.#why) return;
    const kept = this.#outbox.load();
    const early = [...this.#session.tickets];
    this.#session.restore(kept?.head, kept?.tickets ?? []);
    for (const ticket of early) this.#put(ticket, ticket.seq);
    this.#loaded = true;
    this.#save();
    this.#change();
  }

  /** How long to wait before the nth attempt in a row: with full jitter, so that clients that lost one server do not come back at once. */
  #backoff(n) {
    return 1 + Math.random() * Math.min(FIRST_BACKOFF * 2 ** Math.min(n, 20), this.#o.maxBackoff);
  }

  /** Waits before the nth attempt; not longer than until the network is back. */
  #pause(n) {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#hurry(), this.#backoff(n));
      this.#hurry = () => {
        clearTimeout(timer);
        globalThis.removeEventListener?.("online", this.#hurry);
        resolve();
      };
      globalThis.addEventListener?.("online", this.#hurry);
    });
  }

  /** One connection, from its handshake to its end. */
  async #connection() {
    let token, socket;
    try {
      token = typeof this.#o.token === "function" ? await this.#o.token() : this.#o.token;
    } catch (error) {
      return { error };
    }
    if (this.#why) return {};
    try {
      socket = new this.#o.WebSocket(this.#o.url, token ? [SUBPROTOCOL, BEARER + base64url(token)] : [SUBPROTOCOL]);
    } catch (error) { // such as an address that is none
      return { error, final: true };
    }
    const end = await this.#converse(socket);
    this.#session.closed();
    if (end.welcomed) this.#tell(this.#o.onState, { connected: false, error: end.error });
    if (!end.opened && !this.#why) Object.assign(end, await this.#refusal(token));
    // A token that was not good may be another one the next time.
    if (typeof this.#o.token === "function" && (end.error?.closeCode === 4401 || end.error?.problem?.status === 401)) end.final = false;
    return end;
  }

  /** Talks over a socket until it ends. */
  #converse(socket) {
    return new Promise((resolve) => {
      const end = { opened: false, welcomed: false };
      let timer;
      const over = (error, final = false) => {
        clearTimeout(timer);
        socket.onopen = socket.onmessage = socket.onclose = null;
        socket.onerror = () => {}; // that it is closed while it connects
        socket.close();
        this.#socket = undefined;
        resolve({ ...end, error, final });
      };
      const patience = (ms, what, then) => {
        clearTimeout(timer);
        timer = setTimeout(then ?? (() => over(new RedriveError("connection", what))), ms);
      };
      const ping = () => {
        if (!this.#said) socket.send('{"type":"ping"}'); // nothing may follow a bye
        patience(PING_PATIENCE, "no answer to a ping");
      };
      this.#drop = over;
      patience(DIAL_TIMEOUT, "no answer to the handshake");
      socket.onopen = () => {
        end.opened = true;
        if (socket.protocol !== SUBPROTOCOL) return over(new RedriveError("protocol", `the server does not speak ${SUBPROTOCOL}`), true);
        patience(WELCOME_TIMEOUT, "no welcome came");
        const hello = this.#session.hello();
        this.#save();
        socket.send(hello);
      };
      socket.onmessage = ({ data }) => {
        try {
          const news = this.#session.take(data);
          if (news.welcomed) {
            end.welcomed = true;
            this.#socket = socket;
            this.#said = false;
          }
          if (this.#socket) patience(PING_INTERVAL, "", ping);
          this.#take(news);
        } catch (error) {
          over(error);
        }
      };
      socket.onerror = () => { // a close should follow, which tells more; in Node 20 none does
        const broken = new RedriveError("connection", "the connection failed");
        if (end.opened) patience(CLOSE_PATIENCE, "", () => over(broken));
        else over(broken);
      };
      socket.onclose = ({ code, reason }) => {
        over(new RedriveError("connection", `the connection was closed: ${code} ${reason}`.trim(), { closeCode: code }), FINAL.has(code));
      };
    });
  }

  /** Asks over HTTP why a handshake failed: a WebSocket does not tell. */
  async #refusal(token) {
    try {
      const response = await fetch(this.#o.url.replace(/^ws/, "http"), {
        headers: token ? { authorization: `Bearer ${token}` } : {}, signal: AbortSignal.timeout(PROBE_TIMEOUT), cache: "no-store",
      });
      if (response.status < 400 || response.status >= 500 || PASSING.has(response.status)) return {};
      const problem = await response.json().catch(() => ({ title: response.statusText }));
      return { error: new RedriveError("refused", `the daemon refuses the connection: ${textOf(problem)}`, { problem: { ...problem, status: response.status } }), final: true };
    } catch { // it is not there, or of another origin
      return {};
    }
  }

  /** Passes on what a frame meant. */
  #take(news) {
    if (news.gap?.session) {
      for (const call of this.#calls.values()) call.reject(new RedriveError("gap", "session expired: its result is not available"));
      this.#calls.clear();
    }
    if (news.decided.length > 0 || news.welcomed) this.#save();
    news.decided.forEach((ticket) => this.#decided(ticket));
    if (news.welcomed) this.#tell(this.#o.onState, { connected: true });
    if (news.gap) this.#tell(this.#o.onGap, news.gap);
    if (news.slowDown) this.#tell(this.#o.onSlowDown, news.slowDown);
    if (news.result) {
      this.#results.push({ result: news.result, generation: this.#session.generation });
      this.#handle();
    }
    this.#change();
    this.#poke();
  }

  #decided(ticket) {
    this.#outbox.remove(this.#session.base + ticket.seq);
    const duplicate = ticket.refusal?.code === "duplicate";
    const error = duplicate ? undefined : ticket.refusal;
    if (!ticket.refusal && ticket.call) this.#calls.set(ticket.seq, ticket.call);
    if (error) ticket.decided.reject(error);
    else ticket.decided.resolve({ duplicate });
    if (this.#o.onDecided) {
      const { queue, id } = JSON.parse(`{${ticket.fields}}`);
      this.#tell(this.#o.onDecided, { seq: ticket.seq, queue, id, duplicate, error });
    }
  }

  /** Gives results to the application, one after the other. */
  async #handle() {
    if (this.#handling) return;
    this.#handling = true;
    for (let n = 0; this.#results.length > 0 && !this.#why; ) {
      const { result, generation } = this.#results[0];
      try {
        const handled = this.#o.onResult?.(result);
        if (handled?.then) await handled;
      } catch (error) { // it is not acknowledged before it is handled
        report(error);
        await sleep(this.#backoff(n++));
        continue;
      }
      n = 0;
      this.#results.shift();
      if (generation !== this.#session.generation) continue;
      this.#session.handled = result.number;
      this.#answer(result);
      this.#poke();
    }
    this.#handling = false;
  }

  /** Ends the call whose message the result is of. One that only has its number is another message's. */
  #answer(result) {
    const ticket = this.#session.tickets[result.seq - this.#session.acked - 1]; // the ack may come later
    const call = ticket ? ticket.call : this.#calls.get(result.seq);
    if (!call || call.queue !== result.queue || (call.id && call.id !== result.id)) return;
    call.resolve(result);
    if (ticket) ticket.call = undefined;
    this.#calls.delete(result.seq);
  }

  /** Sends what there is to send, once whoever is running now has done all it does. */
  #poke() {
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => {
      this.#flushing = false;
      if (this.#socket?.readyState !== 1) return;
      if (this.#said) return;
      const frames = this.#session.due();
      if (this.#bye && this.pending === 0) frames.push('{"type":"bye"}');
      this.#said = this.#bye && this.pending === 0;
      for (const frame of frames) this.#socket.send(frame);
      this.#save();
    });
  }

  #save() {
    if (this.#loaded && !this.#why) this.#outbox.save(this.#session.head());
  }

  #change() {
    const changed = this.#changed;
    this.#changed = deferred();
    changed.resolve();
  }

  #end(why) {
    if (this.#why) return;
    this.#save();
    this.#why = why;
    this.#drop(why);
    this.#hurry();
    if (this.#bye && why.code === "closed") this.#outbox.clear();
    const closed = new RedriveError("closed", `it is not known whether the message was accepted: ${why.message}`, why);
    for (const ticket of this.#session.tickets) ticket.decided.reject(closed);
    for (const call of this.#calls.values()) call.reject(why);
    this.#change();
    this.#ended.resolve(why);
    this.#tell(this.#o.onEnd, why);
  }

  #tell(callback, news) {
    try {
      callback?.(news);
    } catch (error) {
      report(error);
    }
  }
}

/** The fields of a message's frame, as JSON without the braces. */
function fieldsOf(message) {
  const { contentType, headers = [], body, delay, deliverAt, expiresAt, queue, id, kind, key, result, cloudevent } = message;
  const fields = { queue, id, kind, key, result, cloudevent, delay: typeof delay === "number" ? `${Math.round(delay)}ms` : delay };
  if (typeof queue !== "string") throw new TypeError("a message needs a queue");
  if (deliverAt) fields.deliver_at = deliverAt;
  if (expiresAt) fields.expires_at = expiresAt;
  const list = Array.isArray(headers) ? [...headers] : Object.entries(headers);
  let type = contentType;
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) {
    fields.body_base64 = base64(body instanceof ArrayBuffer ? new Uint8Array(body) : new Uint8Array(body.buffer, body.byteOffset, body.byteLength));
    type ??= "application/octet-stream";
  } else if (typeof body === "string" && type && !/^application\/(.*\+)?json\s*(;|$)/i.test(type)) {
    fields.body_base64 = base64(new TextEncoder().encode(body));
  } else {
    fields.body = body;
  }
  if (type) list.unshift(["content-type", type]);
  if (list.length > 0) fields.headers = list;
  return JSON.stringify(fields).slice(1, -1);
}

function resultOf(f) {
  const { number, seq, queue, id, outcome, reason, error, status, truncated = false } = f;
  const body = f.body_base64 === undefined ? f.body : Uint8Array.from(atob(f.body_base64), (c) => c.charCodeAt(0));
  return { number, seq, queue, id, outcome, reason, error, status, truncated, contentType: f.content_type, contentEncoding: f.content_encoding, body };
}

function refusalOf(problem) {
  const duplicate = problem?.type?.endsWith(":duplicate");
  return new RedriveError(duplicate ? "duplicate" : "refused", textOf(problem), { problem });
}

const textOf = (problem) => [problem?.title || "refused", problem?.detail].filter(Boolean).join(": ");

const tooLarge = (limit) => new RedriveError("too_large", `the message is longer than the server's largest frame (${limit} bytes)`);

/** Whether a text is longer than so many bytes of UTF-8. */
const longer = (text, bytes) => text.length > bytes || (text.length * 3 > bytes && new TextEncoder().encode(text).length > bytes);

/** The address of the gateway: in a browser that of the page's host, unless it is given. */
function socketURL(url) {
  const base = globalThis.location?.href;
  return new URL(url ?? "/v1/ws", base).href.replace(/^http/, "ws");
}

function base64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

const base64url = (text) => base64(new TextEncoder().encode(text)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");

function parsed(text) {
  try {
    return JSON.parse(text ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

/** A promise with its two ends. That it was rejected is no news to whoever did not ask. */
function deferred() {
  const d = {};
  d.promise = new Promise((resolve, reject) => Object.assign(d, { resolve, reject }));
  d.promise.catch(() => {});
  return d;
}

/** The promise, or the signal's reason if that comes first. */
function until(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Waits, without keeping Node alive for it. */
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms).unref?.());

/** An id that no other message has. */
function newID() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** The id that the server derives of an event; none where a page that is not secure cannot. */
async function eventID({ source, id }) {
  if (!crypto.subtle) return undefined;
  const parts = ["cloudevent", source, id].map((part) => new TextEncoder().encode(part));
  const text = new Uint8Array(parts.reduce((n, part) => n + 8 + part.length, 0));
  let at = 0;
  for (const part of parts) {
    new DataView(text.buffer).setUint32(at + 4, part.length);
    text.set(part, at + 8);
    at += 8 + part.length;
  }
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", text)).slice(0, 16);
  hash[6] = (hash[6] & 0x0f) | 0x80;
  hash[8] = (hash[8] & 0x3f) | 0x80;
  return Array.from(hash, (b) => b.toString(16).padStart(2, "0")).join("").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** Tells of an error of a callback, without stopping anything. */
const report = (error) => (globalThis.reportError ?? console.error)(error);
