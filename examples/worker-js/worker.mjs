#!/usr/bin/env node
// A pull worker for Redrive: Node 20 or newer, no dependencies.
//
//   redrive serve --config redrive.yaml        # queues: {work: {}}
//   node worker.mjs work                       # in another terminal
//   redrive publish work '{"to":"ada"}'
//
// It claims messages, handles them side by side, and tells Redrive what became of
// each. Kill it at any time: what it held comes back when the lease has run out. Kill
// the daemon at any time: the worker goes on when the daemon is back, and what it could
// not settle is delivered again, so handle() must bear to see a message twice.
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const server = process.env.REDRIVE_SERVER ?? "http://127.0.0.1:7333";
const token = process.env.REDRIVE_TOKEN; // needs the scope consume
const lease = Number(process.env.REDRIVE_LEASE ?? 10); // seconds a claim holds; it is extended while handle() runs
const concurrency = 8;

/** Thrown by handle() when trying again cannot help. */
export class Permanent extends Error {}

/** What your worker does. Return, and it is done; throw, and it is tried again. */
export async function handle(message, body) {
  console.log(message.id, body.toString());
}

class Refused extends Error {
  constructor(status, problem, after) {
    super(problem?.detail ?? problem?.title ?? `status ${status}`);
    this.status = status;
    this.after = after;
  }
}

async function call(path, payload, timeout = 30_000) {
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  const response = await fetch(server + path, {
    method: "POST", headers, body: JSON.stringify(payload), signal: AbortSignal.timeout(timeout),
  });
  const answer = await response.json().catch(() => undefined);
  if (!response.ok) throw new Refused(response.status, answer, Number(response.headers.get("retry-after") ?? 1));
  return answer;
}

export class Worker {
  constructor(queue, work = handle) {
    this.path = `/v1/queues/${queue}`;
    this.work = work;
    this.name = `${os.hostname()}:${process.pid}`;
    this.running = new Map(); // by receipt: what is not settled yet
    this.stopping = false;
  }

  async run() {
    const extender = setInterval(() => this.extend(), (lease * 1000) / 3);
    while (!this.stopping) {
      if (this.running.size >= concurrency) {
        await Promise.race(this.running.values());
        continue;
      }
      for (const message of await this.claim(concurrency - this.running.size)) {
        const ended = this.one(message).finally(() => this.running.delete(message.receipt));
        this.running.set(message.receipt, ended);
      }
    }
    await Promise.all(this.running.values()); // what is held is finished first
    clearInterval(extender);
  }

  /** Waits for messages; an empty list when there are none or the daemon is away. */
  async claim(n) {
    try {
      const ask = { max: n, lease: `${lease}s`, wait: "5s", worker: this.name };
      return (await call(`${this.path}/claims`, ask)).items;
    } catch (error) {
      console.error(`claim: ${error.message}`);
      await sleep((error.after ?? 1) * 1000);
      return [];
    }
  }

  async one(message) {
    const body = message.body !== undefined ? Buffer.from(message.body) : Buffer.from(message.body_base64 ?? "", "base64");
    let result = { outcome: "done" };
    try {
      await this.work(message, body);
    } catch (error) { // a failure of this message, not of the worker
      result = {
        outcome: error instanceof Permanent ? "dead" : "retry",
        failure: {
          type: error?.name ?? typeof error, message: String(error?.message ?? error), stack: error?.stack ?? "",
          host: os.hostname(), pid: process.pid,
        },
      };
    }
    await this.settle({ ...result, receipt: message.receipt });
  }

  /** Repeats until the daemon took it; a refusal is final. */
  async settle(settlement) {
    for (let pause = 100; ; pause = Math.min(pause * 2, 2000)) {
      let status;
      try {
        const [result] = (await call(`${this.path}/settlements`, { settlements: [settlement] })).items;
        if (!result.error) return;
        status = result.error.status;
        console.error(`settle: ${result.error.title}`); // a lost lease: it is handled elsewhere
      } catch (error) {
        status = error.status;
        console.error(`settle: ${error.message}`);
      }
      if (status !== undefined && status < 500 && status !== 429) return;
      await sleep(pause);
    }
  }

  /** Keeps the leases of what is being handled. */
  async extend() {
    if (this.running.size === 0) return;
    try {
      await call(`${this.path}/extensions`, { receipts: [...this.running.keys()], lease: `${lease}s` });
    } catch (error) {
      console.error(`extend: ${error.message}`);
    }
  }
}

if (process.argv[1]?.endsWith("worker.mjs")) {
  if (process.argv.length !== 3) {
    console.error("usage: worker.mjs QUEUE");
    process.exit(2);
  }
  const worker = new Worker(process.argv[2]);
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (worker.stopping = true));
  await worker.run();
}
