package daemon_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// A report has what died, also of a cause of which nothing is dead any more, the plans with their
// outcomes, who did what, notes, what is still dead and the ledger; each token sees its part.
func TestReport(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		target := newReceiver(t, nil)
		answer := target.Config.Handler
		target.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			target.mu.Lock()
			sick := target.answer == nil
			target.mu.Unlock()
			if !sick {
				answer.ServeHTTP(w, r)
				return
			}
			b, _ := io.ReadAll(r.Body)
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprintf(w, `{"error":"%s"}`, map[bool]string{true: "out of stock", false: "no such customer"}[strings.HasPrefix(string(b), "stock")])
		})
		to := fmt.Sprintf(`{deliver: {url: %q, allow_private: true}}`, target.URL)
		d := start(t, parse(t, fmt.Sprintf(`{queues: {sms: %s, mail: %s, quiet: {}}, tokens: [{name: root, hash: %q}, {name: reader, hash: %q, scopes: [read]}, {name: confined, hash: %q, scopes: [redrive], queues: [mail]}]}`,
			to, to, hash("root"), hash("reader"), hash("confined"))), store).as("root")
		for i := range 5 {
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", fmt.Sprintf("stock %d", i))
		}
		for i := range 2 {
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/mail/messages", fmt.Sprintf("customer %d", i))
		}
		var causes []wire.Cause
		d.eventually("all are dead", func() bool {
			causes = get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes", "").Items
			return len(causes) == 2 && causes[0].Count == 5 && causes[1].Count == 2
		})
		get[wire.CauseLife](d, 200, http.MethodPut, "/v1/causes/"+causes[1].Signature, `{"queue":"mail","state":"acknowledged","note":"vendor | is on it"}`)
		target.mu.Lock()
		target.answer = func(string) int { return http.StatusOK }
		target.mu.Unlock()
		redrive := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", fmt.Sprintf(`{"action":"redrive","filter":{"queue":"sms","signature":%q},"rate":"1000/s","reason":"INC-812"}`, causes[0].Signature))
		d.eventually("the redrive is done", func() bool {
			p := get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+redrive.ID, "")
			return p.Ended() && get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "").Ledger.Done == 5
		})

		r := get[wire.Report](d, 200, http.MethodGet, "/v1/report?since=1h", "")
		if r.By != "root" || r.Died != 7 || r.Dead != 2 || !r.Ledger.Balanced || len(r.Ledger.Queues) != 3 || len(r.Causes) != 2 || len(r.Plans) != 1 || r.ActionsHidden {
			t.Errorf("%+v", r)
		}
		gone, left := r.Causes[0], r.Causes[1]
		if gone.Died != 5 || gone.Count != 0 || gone.Signature != causes[0].Signature || gone.First.IsZero() {
			t.Errorf("of what was redriven: %+v", gone)
		}
		if left.Died != 2 || left.Count != 2 || left.State != wire.CauseAcknowledged || left.Life == nil || left.Life.By != "root" || !strings.Contains(left.Answer, "no such customer") {
			t.Errorf("of what is still dead: %+v", left)
		}
		if p := r.Plans[0]; p.Actor != "root" || p.Done != 5 || p.Progress == nil || p.Progress.Delivered != 5 || p.Request.Reason != "INC-812" {
			t.Errorf("%+v", p)
		}
		ended := slices.IndexFunc(r.Actions, func(e wire.AuditEntry) bool { return e.Action == "plan ended" })
		if ended < 0 || r.Actions[ended].Count != 5 || !slices.ContainsFunc(r.Actions, func(e wire.AuditEntry) bool { return e.Action == "cause acknowledged" && e.Actor == "root" }) {
			t.Errorf("%+v", r.Actions)
		}
		_, md := d.send(http.MethodGet, "/v1/report?since=1h&format=markdown", "")
		for _, want := range []string{"7 messages died, of 2 causes. 2 messages still dead, of 1 cause.", "The ledger balances.", "5 delivered, 0 dead again", "vendor | is on it", "INC-812", "| 5 | 0 | `sms` |"} {
			if !strings.Contains(string(md), want) {
				t.Errorf("%q is not in\n%s", want, md)
			}
		}
		if resp, html := d.send(http.MethodGet, "/v1/report?format=html", ""); resp.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(string(html), "<h1>") {
			t.Errorf("%v %s", resp.Header, html)
		}
		resp, html := d.send(http.MethodGet, "/v1/report?format=html", "")
		_, style, _ := strings.Cut(string(html), "<style>")
		style, _, _ = strings.Cut(style, "</style>")
		sum := sha256.Sum256([]byte(style))
		if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(resp.Header.Get("Content-Security-Policy"), "style-src "+want) {
			t.Errorf("a browser leaves out its style: %q, not %s", resp.Header.Get("Content-Security-Policy"), want)
		}

		if r := get[wire.Report](d, 200, http.MethodGet, "/v1/report?plan="+redrive.ID, ""); len(r.Plans) != 1 || len(r.Causes) != 1 || r.Causes[0].Queue != "sms" || r.Died != 5 || len(r.Ledger.Queues) != 1 || len(r.Actions) != 2 {
			t.Errorf("of the plan: %+v", r)
		}
		d.token = "reader"
		if r := get[wire.Report](d, 200, http.MethodGet, "/v1/report", ""); r.Died != 7 || len(r.Actions) != 0 || !r.ActionsHidden || strings.Contains(r.Causes[1].Answer, "customer") {
			t.Errorf("for a reader: %+v", r)
		}
		d.token = "confined"
		r = get[wire.Report](d, 200, http.MethodGet, "/v1/report", "")
		if r.Died != 2 || r.Dead != 2 || len(r.Causes) != 1 || len(r.Plans) != 0 || len(r.Ledger.Queues) != 1 || r.Ledger.Queues[0].Queue != "mail" || !slices.Equal(r.Queues, []string{"mail"}) || !r.ActionsHidden {
			t.Errorf("for one that is confined: %+v", r)
		}
		d.refused(http.StatusForbidden, "forbidden-queue", http.MethodGet, "/v1/report?plan="+redrive.ID, "")
		d.refused(http.StatusBadRequest, "invalid", http.MethodGet, "/v1/report?format=pdf", "")
		d.refused(http.StatusNotFound, "not-found", http.MethodGet, "/v1/report?plan=none", "")
	})
}
