package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/wire"
)

// signed says of what the dead letters of two queues differ: in a value, which the queue
// cards masks and the queue open does not.
var signed = map[string][2]string{
	"quoted":   {`cannot read {"pin":"ab cd"}`, `cannot read {"pin":"it's"}`},
	"unquoted": {`cannot read {"pin":true,"ok":true}`, `cannot read {"pin":false,"ok":true}`},
	"nested":   {`cannot read [{"pin":{"a":null}}]`, `cannot read [{"pin":[]}]`},
	"broken":   {`cannot read {"pin":true`, `cannot read {"pin":false`},
}

// pinned masks the pin in the queue cards.
const pinned = `{queues: {cards: {mask: ["$..pin"]}, open: {}, called: {mask: ["$..pin"], deliver: {url: %[1]q, allow_private: true}, policy: {max_attempts: 1}},
  asked: {mask: ["$..pin"], deliver: {url: %[1]q, allow_private: true}, guard: {}}}, grace: 100ms}`

// died makes a dead letter of a queue for each of some errors, by one way in.
type died func(d *rig, queue string, errors []string)

func pulledDead(d *rig, queue string, errors []string) {
	for i, text := range errors {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/"+queue+"/messages", "{}", "redrive-id", fmt.Sprint("p-", i))
		c := get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/"+queue+"/claims", `{"wait":"10s"}`)
		body, _ := json.Marshal(map[string]any{"settlements": []any{map[string]any{"receipt": c.Items[0].Receipt, "outcome": "dead",
			"failure": map[string]any{"type": "E", "message": text, "stack": text}}}})
		if r := get[wire.Results](d, 200, http.MethodPost, "/v1/queues/"+queue+"/settlements", string(body)); r.Items[0].Error != nil {
			d.t.Fatal(r.Items[0].Error)
		}
	}
}

func importedDead(d *rig, queue string, errors []string) {
	var lines []string
	for i, text := range errors {
		f := &redrive.Failure{At: time.Now(), Attempt: 1, Types: []string{"E"}, Message: text, Stack: "main.f(" + text + ")\n"}
		f.Signature = driver.Signature(f) // as another signs it, without masks
		later := *f
		later.Signature = fmt.Sprint("2-", i) // forged
		e := redrive.Entry{Message: redrive.Message{Queue: queue, ID: fmt.Sprint("i-", i), Body: []byte("{}")}, State: redrive.StateDead,
			Reason: redrive.ReasonPermanent, DiedAt: time.Now(), History: redrive.History{Count: 2, First: f, Last: &later}}
		line, _ := json.Marshal(wire.Whole(&e, true))
		lines = append(lines, string(line))
	}
	if sum := get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", strings.Join(lines, "\n")); sum.Imported != int64(len(errors)) {
		d.t.Fatalf("%+v", sum)
	}
}

// signatures of a queue's dead letters, by their errors' order; each of one message is one.
func (d *rig) signatures(queue string) []string {
	d.t.Helper()
	list := get[wire.List[wire.Message]](d, 200, http.MethodGet, "/v1/queues/"+queue+"/messages?state=dead", "").Items
	slices.SortFunc(list, func(a, b wire.Message) int { return strings.Compare(a.ID, b.ID) })
	var all []string
	for i := range list {
		whole := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/"+queue+"/dead-letters/"+list[i].ID, "")
		of := []string{list[i].Signature, whole.History.First.Signature}
		if whole.History.Last != nil {
			of = append(of, whole.History.Last.Signature)
		}
		if !strings.HasPrefix(of[0], "2-") || len(slices.Compact(of)) != 1 {
			d.t.Errorf("signatures of one failure: %q", of)
		}
		all = append(all, of[0])
	}
	return all
}

// Dead letters that differ only in what is masked have one cause, whoever reported them.
func TestSignaturesTellNothingOfWhatIsMasked(t *testing.T) {
	for way, die := range map[string]died{"pull": pulledDead, "import": importedDead} {
		for name, errors := range signed {
			t.Run(way+" "+name, func(t *testing.T) {
				d := start(t, parse(t, fmt.Sprintf(pinned, "http://127.0.0.1:1")), newStore(t))
				die(d, "cards", errors[:])
				if all := d.signatures("cards"); len(all) != 2 || all[0] != all[1] {
					t.Errorf("a masked value makes a cause: %q", all)
				}
				g := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?queue=cards", "").Items
				if len(g) != 1 || g[0].Count != 2 {
					t.Errorf("causes: %+v", g)
				}
				die(d, "open", errors[:])
				all := d.signatures("open")
				if name == "unquoted" && (len(all) != 2 || all[0] == all[1]) {
					t.Errorf("a value that nothing masks makes no cause: %q", all)
				}
				if !strings.HasPrefix(way, "import") {
					return
				}
				f := &redrive.Failure{Types: []string{"E"}, Message: errors[0]}
				f.Stack = "main.f(" + errors[0] + ")\n"
				if all[0] != driver.Signature(f) {
					t.Errorf("without masks: %q, want %q", all[0], driver.Signature(f))
				}
			})
		}
	}
}

// Errors that repeat a target's answer, of deliveries and of calls through a guard, and those
// that workers report and imports bring, have the same causes for every value of what is
// masked: whoever may not see it receives the same from lists, causes and plans.
func TestCausesOfDeliveriesTellNothingOfWhatIsMasked(t *testing.T) {
	const token = "secret-read"
	answers := func(pin string) (shown []string) {
		target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 %s x\r\n\r\n", body) // the error repeats it
		}))
		defer target.Close()
		c := parse(t, fmt.Sprintf(pinned, target.URL))
		c.Tokens = vaultConfig(t).Tokens
		d := start(t, c, newStore(t))
		defer d.shutdown()
		d.token = "secret-admin"
		text := `cannot read {"pin":` + pin + `}`
		pulledDead(d, "cards", []string{text})
		importedDead(d, "cards", []string{text})
		quoted := fmt.Sprintf(`{"pin":%s,"rest":%q}`, pin, strings.Repeat("long ", 100)[:300])
		quoted = strings.ReplaceAll(quoted, "long ", "long-")
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/called/messages", quoted, "redrive-id", "h-0")
		d.refused(http.StatusBadGateway, "uncertain", http.MethodPost, "/v1/call/asked?repeat=never", quoted, "redrive-id", "g-0")
		d.eventually("the delivery to die", func() bool {
			return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/called", "").Dead == 1
		})
		whole := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/called/dead-letters/h-0?unmasked=true", "")
		if !strings.Contains(whole.History.First.Message, "malformed") {
			t.Errorf("the error quotes no answer: %q", whole.History.First.Message)
		}
		causes := slices.Concat(d.signatures("cards"), d.signatures("called"), d.signatures("asked"))
		d.token = token
		for _, cause := range causes {
			for _, path := range []string{"/v1/dead-letters?signature=", "/v1/causes?signature="} {
				var list wire.List[struct {
					Signature string `json:"signature"`
					Error     string `json:"error"`
					Message   string `json:"message"`
					Count     int64  `json:"count"`
				}]
				_, b := d.send(http.MethodGet, path+cause, "")
				decode(t, b, &list)
				if len(list.Items) == 0 || bytes.Contains(b, []byte(pin)) {
					t.Errorf("%s%s: %s", path, cause, b)
				}
				shown = append(shown, fmt.Sprintf("%+v", list.Items))
			}
			d.token = "secret-redrive"
			_, b := d.send(http.MethodPost, "/v1/plans", fmt.Sprintf(`{"action":"redrive","filter":{"signature":%q},"dry_run":true}`, cause))
			shown = append(shown, anyTime.ReplaceAllString(string(b), "TIME"))
			d.token = token
		}
		return shown
	}
	first, second := answers("1.25e3"), answers("false")
	if !slices.Equal(first, second) {
		t.Errorf("two values are distinguished:\n%s\n%s", strings.Join(first, "\n"), strings.Join(second, "\n"))
	}
}

// A store that is opened without its daemon: nobody knows its masks, and the file may come
// from a daemon that does.
func TestAnImportWithoutADaemonKeepsSignatures(t *testing.T) {
	store := newStore(t)
	defer store.Close()
	api := daemon.Local(store, nil, slog.Default())
	defer api.Close()
	e := redrive.Entry{Message: redrive.Message{Queue: "q", ID: "m"}, State: redrive.StateDead, Reason: redrive.ReasonPermanent, DiedAt: time.Now(),
		History: redrive.History{Count: 1, First: &redrive.Failure{At: time.Now(), Message: "cannot read {}", Signature: "1-0123456789abcdef"}}}
	line, _ := json.Marshal(wire.Whole(&e, true))
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/dead-letters", bytes.NewReader(line)))
	got, err := store.Get(t.Context(), []redrive.Ref{e.Ref()})
	if err != nil || got[0] == nil || got[0].History.First.Signature != "1-0123456789abcdef" {
		t.Errorf("%d %s: %+v, %v", w.Code, w.Body, got, err)
	}
}
