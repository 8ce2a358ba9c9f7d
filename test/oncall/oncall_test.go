// Package oncall is a walk at three in the morning, from an alert to the report: by the command line
// only, in at most ten commands, and by the dashboard in a browser.
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
	w := newWorld(t)
	p := onCall(t, w, "")
	p.prepare(n)
	p.began = time.Now()
	all := p.walk(w, n)
	seconds := time.Since(p.began)
	t.Logf("%d dead letters, %d commands, %s\n\n%s", all, p.commands, seconds.Round(time.Second), p.String())
	if p.commands > 10 {
		t.Errorf("%d commands", p.commands)
	}
}

// onCall starts a daemon over the queues of the world, and of more, and returns who looks after it.
func onCall(t *testing.T, w *world, more string) *person {
	t.Helper()
	dir := t.TempDir()
	bin, err := programtest.Build(dir, "redrive")
	if err != nil {
		t.Fatal(err)
	}
	const queue = "  %s: {deliver: {url: %q, allow_private: true}}\n"
	var yaml strings.Builder
	yaml.WriteString("queues:\n")
	for _, q := range []string{"orders", "payments", "mails"} {
		fmt.Fprintf(&yaml, queue, q, w.URL+"/"+q)
	}
	yaml.WriteString(more + fmt.Sprintf("alerts: {receivers: [{webhook: %q, allow_private: true}]}\n", w.URL+"/alerts"))
	file, url := programtest.Configure(t, "sqlite:"+filepath.Join(dir, "data"), yaml.String())
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
	return p
}

// walk goes from the alert to the ledger, of a cause of which n are dead and more die until somebody has
// looked at it. It returns how many that were in the end.
func (p *person) walk(w *world, n int) (all int) {
	stop := p.live()
	p.until("the alert", func() bool { return w.firing("orders").Summary != "" })
	alert := w.firing("orders")
	next := strings.Fields(alert.Next)
	before := p.queue("orders").Dead
	shown := p.types(0, "alerts")
	p.says(shown, alert.Subject, alert.Next)
	p.between(shown, `orders: new cause: .*: ([\d,]+) dead letters`, int64(n), p.queue("orders").Dead)
	looked := p.types(0, next[1:]...)
	p.says(looked, "POISON", "422", "schema_version <n> is required", "/min")
	p.between(looked, `([\d,]+) dead, \+`, before, p.queue("orders").Dead)
	live := stop()
	if all = n + live; live == 0 {
		p.Error("nothing died while somebody looked")
	}
	p.until("the live ones died", func() bool { return p.queue("orders").Dead == int64(all) })

	signature := strings.Split(alert.Subject, "/")[2]
	repair := func(value string) string {
		out := p.types(0, "dead", "repair", "--queue", "orders", "--signature", signature, "--set", "$.schema_version="+value, "--wait", "--yes")
		p.says(out, fmt.Sprintf("%s of %s repaired", grouped(all), grouped(all)))
		plan := regexp.MustCompile(`--plan (\S+)`).FindStringSubmatch(out)
		if plan == nil {
			p.Fatalf("it names no plan:\n%s", out)
		}
		return plan[1]
	}
	good := w.of("orders")
	wrong := repair("3")
	stopped := p.types(1, "dead", "redrive", "--plan", wrong, "--canary", "10", "--wait", "--yes")
	p.says(stopped, "stopped", "10 of "+grouped(all), "10 of the canary's 10 died again")
	if strings.Contains(stopped, "all delivered") {
		p.Errorf("it says that the canary was delivered:\n%s", stopped)
	}
	p.until("the canary is at its end", func() bool { return p.queue("orders").Dead == int64(all) })
	if n := w.of("orders"); n != good {
		p.Errorf("%d orders were delivered by the wrong repair", n-good)
	}
	right := repair("2")
	p.says(p.types(0, "dead", "redrive", "--plan", right, "--canary", "10", "--rate", "10000/s", "--wait", "--yes"), fmt.Sprintf("%s of %s redriven", grouped(all), grouped(all)))
	p.until("all are delivered", func() bool { return w.of("orders") == good+all })
	p.says(p.types(0, "verify"), "the ledger balances")
	p.says(p.types(0, "report", "--since", "1h"), signature, wrong, right, "schema_version", "422")
	if q := p.queue("orders"); q.Dead != 0 || q.Waiting.All != 0 {
		p.Errorf("%d dead, %d waiting", q.Dead, q.Waiting.All)
	}
	p.reported(signature, int64(all))
	return all
}

// live lets more die of the cause until the function that it returns is called, which says how many
// there were.
func (p *person) live() (stop func() int) {
	const every = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(p.Context())
	p.Cleanup(cancel)
	published := make(chan int, 1)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				published <- n
				return
			case <-tick.C:
				if err := p.post("orders", fmt.Sprintf("live-%d", n), order(n)); err != nil {
					p.Error(err)
					published <- n
					return
				}
			}
		}
	}()
	return func() int {
		cancel()
		return <-published
	}
}

// between fails the test if a number that an output shows is not in a range.
func (p *person) between(out, pattern string, low, high int64) {
	p.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(out)
	if m == nil {
		p.Errorf("it does not show %s:\n%s", pattern, out)
		return
	}
	if n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64); err != nil || n < low || n > high {
		p.Errorf("it shows %s, and it was %d to %d:\n%s", m[0], low, high, out)
	}
}

// reported compares the report with what happened: all died once, and the canary of the wrong repair
// twice.
func (p *person) reported(signature string, all int64) {
	p.Helper()
	var r wire.Report
	p.get("/v1/report?since=1h", &r)
	if r.Died != all+10+1 || r.DiedMore || r.Dead != 1 || r.CausesDied != 2 || r.CausesDead != 1 || r.CausesMore || len(r.Causes) != 2 || !r.Ledger.Balanced {
		p.Errorf("%d died, more %t, %d dead, %d causes died, %d dead, %d listed", r.Died, r.DiedMore, r.Dead, r.CausesDied, r.CausesDead, len(r.Causes))
	}
	if c := r.Causes[0]; c.Signature != signature || c.Died != all+10 || c.Count != 0 {
		p.Errorf("%+v", c)
	}
	if c := r.Causes[1]; c.Queue != "payments" || c.Died != 1 || c.Count != 1 {
		p.Errorf("%+v", c)
	}
	var done []string
	for i := range r.Plans { // the newest first
		done = append(done, fmt.Sprint(r.Plans[i].Request.Action, " ", r.Plans[i].State, " ", r.Plans[i].Done))
	}
	if got, want := strings.Join(done, ", "), fmt.Sprintf("redrive done %[1]d, repair done %[1]d, redrive stopped 10, repair done %[1]d", all); got != want {
		p.Errorf("plans %s, want %s", got, want)
	}
	for i := range r.Plans {
		if g := r.Plans[i].Progress; r.Plans[i].Request.Action == "redrive" && (g == nil || g.Delivered+g.DeadAgain != r.Plans[i].Done || i == 0 && g.Delivered != all) {
			p.Errorf("%+v", g)
		}
	}
	for _, q := range r.Ledger.Queues {
		if q.Queue == "orders" && (q.Ledger.Done != all+20 || q.Ledger.Entered != all+20 || q.Dead != 0) {
			p.Errorf("%+v", q)
		}
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
	p.copies("orders", n-1, order)
	p.until("they are there", func() bool { return p.queue("orders").Dead == int64(n) })
}

// copies imports n copies of the dead letter of a queue, with other bodies: a real cause signed it.
func (p *person) copies(queue string, n int, body func(i int) string) {
	p.Helper()
	code, out := p.run("dead", "export", "--queue", queue)
	var one map[string]any
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &one); code != 0 || err != nil {
		p.Fatalf("%v: %s", err, out)
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for i := range n {
		one["id"] = fmt.Sprintf("%s-%d", strings.TrimSuffix(queue, "s"), i)
		delete(one, "body_base64")
		delete(one, "crc32c") // the body is another
		one["body"] = body(i)
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
}

// order is a body as a shop writes it.
func order(i int) string {
	return fmt.Sprintf(`{"order":"SO-%06d","customer":{"name":"Ann Müller","country":"DE"},"lines":[{"sku":"A-%d","qty":%d,"price":12.90}],"total":12.900,"note":"ring twice"}`, i, i%97, i%5+1)
}

func (p *person) publish(queue, id, body string) {
	p.Helper()
	if err := p.post(queue, id, body); err != nil {
		p.Fatal(err)
	}
}

func (p *person) post(queue, id, body string) error {
	req, err := http.NewRequestWithContext(p.Context(), http.MethodPost, p.url+"/v1/queues/"+queue+"/messages", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Redrive-Id", id)
	req.Header.Set("Redrive-Kind", strings.TrimSuffix(queue, "s")+".created")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("publish: %s", resp.Status)
	}
	return nil
}

func (p *person) queue(name string) (q wire.Queue) {
	p.Helper()
	p.get("/v1/queues/"+name, &q)
	return q
}

func (p *person) get(path string, into any) {
	p.Helper()
	resp, err := http.Get(p.url + path)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		p.Fatal(err)
	}
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
