// Types of the JavaScript client of Redrive's WebSocket gateway.

/** What is published. Only the queue must be given. */
export interface Message {
  queue: string;
  /** By it the message is recognised beyond the session: however often it is published, it is accepted once. By default the server makes one. */
  id?: string;
  kind?: string;
  /** Groups messages, and orders them where the queue is ordered by key. */
  key?: string;
  /** Bytes (ArrayBuffer and its views) are sent as they are, and so is a string whose contentType is not JSON; anything else is sent as JSON. */
  body?: unknown;
  /** By default application/json, or application/octet-stream for bytes. */
  contentType?: string;
  headers?: Record<string, string> | [name: string, value: string][];
  /** Milliseconds, or a duration such as "5s". */
  delay?: number | string;
  deliverAt?: Date | string;
  expiresAt?: Date | string;
  /** false: no result of this message is wanted. */
  result?: boolean;
  /** The message as a CloudEvent (1.0, structured); then only queue, result, delay and deliverAt may stand beside it. */
  cloudevent?: object;
}

/** How a message ended. */
export interface Result {
  /** Of the result: 1 is the session's first. */
  number: number;
  /** Under which the message was published in this session. */
  seq: number;
  queue: string;
  id: string;
  outcome: "done" | "dead" | "drop";
  /** Why it is dead or was dropped. */
  reason?: string;
  /** An excerpt of the last error. */
  error?: string;
  /** HTTP status of the target's answer. */
  status?: number;
  contentType?: string;
  contentEncoding?: string;
  /** The answer was longer than the server keeps. */
  truncated: boolean;
  /** The answer: as it was parsed if it is JSON, else a Uint8Array. */
  body?: any;
}

/** A problem of RFC 9457. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  hint?: string;
}

/**
 * - refused: the server did not accept the message, or the connection; the problem says why
 * - duplicate: the message of a call was accepted before, under its id: the result goes to whoever published it first
 * - too_large: the message is longer than the server's largest frame
 * - backlogged: 1,000 messages are not decided; wait for room()
 * - storage: the message cannot be kept, the storage is full
 * - gap: the session is not known any more, and with it the result of a call is lost
 * - connection: the server closed the connection for good; closeCode says why
 * - protocol: the server does not speak this protocol
 * - closed: the client was closed; of a message that was on its way it is not known whether it was accepted
 */
export type ErrorCode = "refused" | "duplicate" | "too_large" | "backlogged" | "storage" | "gap" | "connection" | "protocol" | "closed";

export class RedriveError extends Error {
  constructor(code: ErrorCode, message: string, more?: { problem?: Problem; closeCode?: number });
  readonly code: ErrorCode;
  readonly problem?: Problem;
  readonly closeCode?: number;
}

/** That it was decided whether a message is accepted. */
export interface Decided {
  /** Under which it was published in this session. */
  seq: number;
  queue: string;
  /** As it stood in the message. */
  id?: string;
  /** It was accepted before, under its id; its result does not come to this session. */
  duplicate: boolean;
  /** Set if it was not accepted. */
  error?: RedriveError;
}

export interface Options {
  /** ws://, wss://, http:// or https://; in a browser by default /v1/ws of the page's host. */
  url?: string | URL;
  /** A function is asked for each connection, so that a token that expired is replaced by another one. */
  token?: string | (() => string | undefined | Promise<string | undefined>);
  /**
   * Called with each result, one after the other, in their order. When it returns, or the
   * promise that it returns is fulfilled, the server forgets the result; if it throws, it
   * is called with it again after a while. Results of calls come here too.
   */
  onResult?: (result: Result) => unknown;
  /** Called with each message that is decided, also of those that an earlier page had left in the storage. */
  onDecided?: (decided: Decided) => void;
  /** Called when results were lost: those of the whole session, which the server does not know any more, or a number that expired. */
  onGap?: (gap: { session: boolean; lost: number }) => void;
  /** Called when the server is busy. */
  onSlowDown?: (news: { queue: string; level: "warn" | "refused" | "ok"; retryAfter?: number }) => void;
  /** Called when the connection is there and when it is not. */
  onState?: (state: { connected: boolean; error?: Error }) => void;
  /** Called when the client has ended: it was closed, or the server refused it for good. */
  onEnd?: (why: Error) => void;
  /**
   * Keeps the session, and the messages that are not decided, beyond the page: such as
   * localStorage or sessionStorage. By default both end with the page. Of the pages that
   * share localStorage one at a time is connected; another one connects when it is gone.
   */
  storage?: Pick<Storage, "getItem" | "setItem" | "removeItem">;
  /** Names the session in the storage: one for each user of a page. By default "redrive". */
  key?: string;
  /** How many results may come that are not handled yet: 1-256, by default 64. */
  window?: number;
  /** Bounds how long the client waits before it connects again; in milliseconds, by default 30,000. */
  maxBackoff?: number;
  /** A class that is used in place of the global WebSocket. */
  WebSocket?: new (url: string, protocols?: string[]) => any;
}

export interface Waiting {
  /** Ends the waiting; the message is on its way all the same. */
  signal?: AbortSignal;
}

/** A session with a daemon, which keeps itself connected until it is closed. */
export class Client {
  constructor(options?: Options);

  /**
   * Publishes a message. Fulfilled when it is durable, however long that takes; rejected
   * with a RedriveError if it is refused or the client ends before.
   */
  publish(message: Message, options?: Waiting): Promise<{ duplicate: boolean }>;

  /**
   * Publishes a message and waits for its result, which may be that it is dead. A result
   * that names another queue, or another id than the message has, is not taken for it.
   */
  call(message: Message, options?: Waiting): Promise<Result>;

  /** Waits until another message would be sent at once: before each of many. */
  room(options?: Waiting): Promise<void>;

  /** Waits until every message is decided. */
  flush(options?: Waiting): Promise<void>;

  /** Ends the session for good when every message is decided: results that are still to come are given up. */
  bye(options?: Waiting): Promise<void>;

  /** Ends the client. The server keeps the session for a while: with a storage it goes on where it stood. */
  close(): void;

  /** Whether the connection is there. */
  readonly connected: boolean;

  /** How many messages are not decided yet; at most 1,000. */
  readonly pending: number;

  /** Fulfilled with the reason when the client has ended. */
  readonly ended: Promise<Error>;
}

/** Begins a session, or goes on with the one in the storage. */
export function connect(options?: Options): Client;
