// Run by test/e2e, which starts the daemon: go test -run JavaScript ./test/e2e
import { test } from "node:test";
import { checks, World } from "./checks.js";

const { REDRIVE_TEST_URL: url, REDRIVE_TEST_TOKEN: token, REDRIVE_TEST_API: api } = process.env;
const world = new World({ url, token, api, sameOrigin: true, label: "node" });

Object.entries(checks).forEach(([name, check], i) => {
  test(name, { timeout: 60_000, skip: !url && "there is no daemon: run it by go test ./test/e2e" }, () => world.run(check, `node${i}`));
});
