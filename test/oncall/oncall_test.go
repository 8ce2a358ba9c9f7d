// Package oncall is a walk at three in the morning, by the command line only: from an alert to the
// report, in at most ten commands.
package oncall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/programtest"
	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/internal/wire"
)

// world is what surrounds the daemon: a target of three queues, and whom alerts go to.
type world struct {
	*httptest.Server
	mu        sync.Mutex
	delivered map[string]int // by queue
	alerts    []wire.Alert
}

func newWorld(t *testing.T) *world {
	w := &world{delivered: make(map[string]int)}
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

// ServeHTTP is the target: since a deploy, orders need a version of their schema. Payments of one
// kind were never understood; mails work.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	queue := strings.TrimPrefix(r.URL.Path, "/")
	w.mu.Lock()
	defer w.mu.Unlock()
	var message struct {
		SchemaVersion int `json:"schema_version"`
		Firing        []wire.Alert
	}
	if json.Unmarshal(body, &message) != nil {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	switch {
	case queue == "alerts":
		w.alerts = append(w.alerts, message.Firing...)
		return
	case queue == "orders" && message.SchemaVersion != 2:
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(rw, `{"error":{"code":"invalid_order","message":"schema_version 2 is required"},"trace":%q}`, r.Header.Get("Webhook-Id"))
		return
	case queue == "payments" && strings.Contains(string(body), "sepa-legacy"):
		rw.WriteHeader(http.StatusNotFound)
		fmt.Fprint(rw, `{"error":{"code":"unknown_method"}}`)
		return
	}
	w.delivered[queue]++
}

// firing returns the newest alert about a cause of a queue.
func (w *world) firing(queue string) (a wire.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.alerts {
		if one.Queue == queue && strings.HasPrefix(one.Subject, "cause/") {
			a = one
		}
	}
	return a
}

func (w *world) of(queue string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.delivered[queue]
}

// person is whoever is on call, and keeps what the walk took.
type person struct {
	*testing.T
	bin, url string
	transcript
}

type transcript struct {
	bytes.Buffer
	commands int
	began    time.Time
}

// types runs a command as it is typed, and counts it.
func (p *person) types(want int, line ...string) string {
	p.Helper()
	began := time.Now()
	code, out := p.run(line...)
	p.commands++
	fmt.Fprintf(&p.transcript, "$ redrive %s\n%s(%s)\n\n", strings.Join(line, " "), out, time.Since(began).Round(10*time.Millisecond))
	if code != want {
		p.Fatalf("%q ended with %d, want %d:\n%s", line, code, want, out)
	}
	return out
}

func (p *person) run(line ...string) (code int, out string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.bin, line...)
	cmd.Env = programtest.Environ("REDRIVE_SERVER=" + p.url)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		p.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// says fails the test if an output lacks a text.
func (p *person) says(out string, texts ...string) {
	p.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			p.Errorf("it does not say %q:\n%s", text, out)
		}
	}
}

// TestOnCall has REDRIVE_ONCALL dead letters (2,000), imported, of a cause that goes on killing. It prints the
// commands with their output, seconds and figures.
func TestOnCall(t *testing.T) {
	n := 2000
	if s := os.Getenv("REDRIVE_ONCALL"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 100 {
			t.Fatalf("REDRIVE_ONCALL=%q is not a number of dead letters, 100 or more", s)
		}
	}
	dir := t.TempDir()
	bin, err := programtest.Build(dir, "redrive")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	const queue = "  %s: {deliver: {url: %q, allow_private: true}}\n"
	yaml := "queues:\n"
	for _, q := range []string{"orders", "payments", "mails"} {
		yaml += fmt.Sprintf(queue, q, w.URL+"/"+q)
	}
	yaml += fmt.Sprintf("alerts: {receivers: [{webhook: %q, allow_private: true}]}\n", w.URL+"/alerts")
	file, url := programtest.Configure(t, "sqlite:"+filepath.Join(dir, "data"), yaml)
	p := &person{T: t, bin: bin, url: url}
	daemon := servertest.New(servertest.Command{Name: "daemon", Dir: dir, Path: bin, Args: []string{"serve", "--config", file}, Patience: time.Minute})
	if err := daemon.Start(func() bool { return programtest.Ready(p.url) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if daemon.Kill(); t.Failed() {
			t.Log(daemon.Log())
		}
	})
	p.prepare(n)
	live := 30 // which die while somebody looks
	for i := range live {
		p.publish("orders", fmt.Sprintf("live-%d", i), order(i))
	}
	p.began = time.Now()
	p.walk(w, n+live)
	seconds := time.Since(p.began)
	t.Logf("%d dead letters, %d commands, %s\n\n%s", n+live, p.commands, seconds.Round(time.Second), p.String())
	if p.commands > 10 {
		t.Errorf("%d commands", p.commands)
	}
}

// walk goes from the alert to the ledger. all is how many died of the cause.
func (p *person) walk(w *world, all int) {
	p.until("the alert", func() bool { return w.firing("orders").Summary != "" })
	p.until("the live ones died", func() bool { return p.queue("orders").Dead == int64(all) })
	alert := w.firing("orders")
	next := strings.Fields(alert.Next)
	p.says(p.types(0, "alerts"), alert.Subject, alert.Next)
	p.says(p.types(0, next[1:]...), "POISON", grouped(all)+" dead", "422", "schema_version <n> is required")

	signature := alert.Subject[strings.LastIndexByte(alert.Subject, '/')+1:]
	repair := func(value string) string {
		out := p.types(0, "dead", "repair", "--queue", "orders", "--signature", signature, "--set", "$.schema_version="+value, "--wait", "--yes")
		p.says(out, fmt.Sprintf("%s of %s repaired", grouped(all), grouped(all)))
		plan := regexp.MustCompile(`--plan (\S+)`).FindStringSubmatch(out)
		if plan == nil {
			p.Fatalf("it names no plan:\n%s", out)
		}
		return plan[1]
	}
	before := w.of("orders")
	wrong := repair("3")
	stopped := p.types(1, "dead", "redrive", "--plan", wrong, "--canary", "10", "--wait", "--yes")
	p.says(stopped, "stopped", "10 of "+grouped(all), "10 of the canary's 10 died again")
	if strings.Contains(stopped, "all delivered") {
		p.Errorf("it says that the canary was delivered:\n%s", stopped)
	}
	p.until("the canary is at its end", func() bool { return p.queue("orders").Dead == int64(all) })
	if n := w.of("orders"); n != before {
		p.Errorf("%d orders were delivered by the wrong repair", n-before)
	}
	right := repair("2")
	p.says(p.types(0, "dead", "redrive", "--plan", right, "--canary", "10", "--rate", "10000/s", "--wait", "--yes"), fmt.Sprintf("%s of %s redriven", grouped(all), grouped(all)))
	p.until("all are delivered", func() bool { return w.of("orders") == before+all })
	p.says(p.types(0, "verify"), "the ledger balances")
	p.says(p.types(0, "report", "--since", "1h"), signature, wrong, right, "schema_version", "422")
	if q := p.queue("orders"); q.Dead != 0 || q.Waiting.All != 0 {
		p.Errorf("%d dead, %d waiting", q.Dead, q.Waiting.All)
	}
}

// prepare makes n dead letters of the cause in orders, and some of an older one in payments: one dies live, and
// is exported, copied and imported, as a real cause signs them.
func (p *person) prepare(n int) {
	p.Helper()
	p.publish("orders", "first", order(0))
	for i := range 20 {
		p.publish("mails", fmt.Sprintf("mail-%d", i), `{"to":"ann@example.com"}`)
		p.publish("payments", fmt.Sprintf("pay-%d", i), `{"method":"card","amount":12.5}`)
		p.publish("orders", fmt.Sprintf("good-%d", i), `{"schema_version":2,"lines":[]}`)
	}
	p.publish("payments", "legacy", `{"method":"sepa-legacy"}`)
	p.until("two died", func() bool { return p.queue("orders").Dead == 1 && p.queue("payments").Dead == 1 })
	code, out := p.run("dead", "export", "--queue", "orders")
	var one map[string]any
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &one); code != 0 || err != nil {
		p.Fatalf("%v: %s", err, out)
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for i := range n - 1 {
		one["id"] = fmt.Sprintf("order-%d", i)
		delete(one, "body_base64")
		delete(one, "crc32c") // the body is another
		one["body"] = order(i)
		if err := enc.Encode(one); err != nil {
			p.Fatal(err)
		}
	}
	file := filepath.Join(p.TempDir(), "dead.ndjson")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		p.Fatal(err)
	}
	if code, out := p.run("dead", "import", file); code != 0 {
		p.Fatal(out)
	}
	p.until("they are there", func() bool { return p.queue("orders").Dead == int64(n) })
}

// order is a body as a shop writes it.
func order(i int) string {
	return fmt.Sprintf(`{"order":"SO-%06d","customer":{"name":"Ann Müller","country":"DE"},"lines":[{"sku":"A-%d","qty":%d,"price":12.90}],"total":12.900,"note":"ring twice"}`, i, i%97, i%5+1)
}

func (p *person) publish(queue, id, body string) {
	p.Helper()
	req, err := http.NewRequestWithContext(p.Context(), http.MethodPost, p.url+"/v1/queues/"+queue+"/messages", strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	req.Header.Set("Redrive-Id", id)
	req.Header.Set("Redrive-Kind", strings.TrimSuffix(queue, "s")+".created")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusAccepted {
		p.Fatalf("publish: %s", resp.Status)
	}
}

func (p *person) queue(name string) (q wire.Queue) {
	p.Helper()
	resp, err := http.Get(p.url + "/v1/queues/" + name)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&q); err != nil {
		p.Fatal(err)
	}
	return q
}

func (p *person) until(what string, done func() bool) {
	p.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			p.Fatalf("it did not come to pass: %s\n%s", what, p.String())
		case <-tick.C:
		}
	}
}

func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
