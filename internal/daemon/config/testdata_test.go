package config_test

// whole names every key that a file may have.
const whole = `
listen: 127.0.0.1:7333
store: sqlite:./redrive-data
grace: 10s
service: billing
environment: test
max_body: 1MiB
log: {level: debug, format: json}
limits: {bytes: 10GB}
archive: ./old-letters
retention: {age: 90d}
mask: ["$..password", "header:authorization"]
policies:
  gold: {max_attempts: 50, backoff: {type: schedule, delays: [1s, 5s, 1m]}}
  plain:
queues:
  sms:
    dead_letters: parked
    order: key
    on_dead: release
    deliver: {url: "https://provider.example/send", timeout: 5s, concurrency: 64, rate: 3000/s, secret: "env:SMS_SECRET",
      secrets: ["whsec_bGl0ZXJhbCBzZWNyZXQgdGhhdCBpcyBsb25n"], headers: {X-Version: 1, Authorization: "env:SMS_AUTH"},
      allow_private: true, allow_cidrs: [10.0.0.0/8, "fd00::/8"], max_response: 4KiB}
    policy: {max_attempts: 5, max_crashes: 7, max_age: 7d, timeout: 10s, inline: 1,
      backoff: {type: exponential, base: 1s, multiplier: 2, max: 5m, jitter: plus-minus, spread: 500ms}}
    classify: {permanent: [400, 404, "type:*ValidationError"], transient: [409, timeout], release: [503]}
    kinds:   {"sms.otp": {policy: {max_attempts: 2, on_expire: drop, max_age: 0, backoff: {type: fixed, interval: 2s}}}}
    rules:
      - {match: {header.tenant: gold}, policy: gold}
      - {match: {header.tenant: 42}, policy: {timeout: 1m}}
    limits:  {depth: 1_000_000, age: 1h30m, soft: 80%}
    remember: 48h
    trace: child
    breaker: {window: 20s, min_attempts: 40, min_messages: 20, share: 95%, last_failed: 20, probe_min: 2s, probe_max: 1m}
    retention: {keep: 100000, archive: false}
    mask: ["$.card.number"]
  mail:
tokens:
  - {name: billing, hash: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", scopes: [publish, read], queues: [sms]}
`
