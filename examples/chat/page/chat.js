// A page that loses nothing: its messages are kept by the client until they are durable at
// the server, and their answers by the server until this page has them.
import { connect } from "./redrive.js";

const $ = (id) => document.getElementById(id);
const history = JSON.parse(localStorage.getItem("chat.history") ?? "[]"); // {id, text, state, reply}
const shown = new Map(); // by id: the element

/** Texts are shown by textContent: what somebody writes is never taken for HTML. */
function show(message) {
  let item = shown.get(message.id);
  if (!item) {
    item = document.createElement("li");
    item.append(document.createElement("span"), document.createElement("small"), document.createElement("q"));
    shown.set(message.id, item);
    $("messages").append(item);
  }
  const [text, state, reply] = item.children;
  text.textContent = message.text;
  state.textContent = message.state;
  reply.textContent = message.reply ?? "";
}

function change(id, news) {
  const message = history.find((m) => m.id === id);
  if (!message) return;
  Object.assign(message, news);
  localStorage.setItem("chat.history", JSON.stringify(history));
  show(message);
}

history.forEach(show);

const client = connect({
  storage: localStorage, // a reload goes on with the session, and with what was on its way
  key: "chat.session",
  onState: ({ connected }) => ($("connection").textContent = connected ? "connected" : "connecting"),
  onEnd: (why) => ($("connection").textContent = why.message),
  onDecided: ({ id, error }) => change(id, { state: error ? error.message : "accepted, not delivered yet" }),
  onResult: ({ id, outcome, reason, body }) => change(id, outcome === "done" ? { state: "delivered", reply: body.reply } : { state: `failed: ${reason}` }),
});

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const message = { id: crypto.randomUUID(), text: $("text").value, state: "on its way" };
  $("form").reset();
  history.push(message);
  // onDecided says what becomes of it; here only what cannot be sent at all is left.
  client.publish({ queue: "chat", id: message.id, body: { text: message.text } }).catch((error) => change(message.id, { state: error.message }));
  change(message.id, {});
});

async function turn(method, body) {
  const { down } = await (await fetch("/switch", { method, body })).json();
  $("switch").textContent = down ? "bring the API back" : "take the API down";
  $("switch").disabled = false;
  $("switch").onclick = () => turn("POST", new URLSearchParams({ api: down ? "up" : "down" }));
}
await turn("GET");
