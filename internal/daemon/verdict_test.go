package daemon_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/wire"
)

func TestVerdicts(t *testing.T) {
	const answered, noAnswer = "delivery.ResponseError", "delivery.TransportError"
	for name, c := range map[string]struct {
		evidence wire.Evidence
		status   int
		of       string
		want     string
	}{
		"breaker open":                    {wire.Evidence{Breaker: "open", Kinds: 1}, 503, answered, "down"},
		"breaker probing":                 {wire.Evidence{Breaker: "probing"}, 0, noAnswer, "down"},
		"breaker open, but refused":       {wire.Evidence{Breaker: "open"}, 422, answered, "unclear"},
		"no answer":                       {wire.Evidence{Failed: 9, Minutes: 2, Kinds: 1}, 0, noAnswer, "down"},
		"a library's no answer":           {wire.Evidence{Failed: 9, Minutes: 2, Kinds: 1}, 0, "*net.OpError", "down"},
		"5xx of several kinds":            {wire.Evidence{Failed: 9, Minutes: 2, Kinds: 2}, 503, answered, "down"},
		"5xx of the only kind":            {wire.Evidence{Failed: 9, Minutes: 2, Kinds: 1}, 503, answered, "unclear"},
		"5xx, nothing seen":               {wire.Evidence{Kinds: 5}, 503, answered, "unclear"},
		"no answer, others pass":          {wire.Evidence{Delivered: 50, KindDelivered: 5, Failed: 9, Minutes: 2, Kinds: 1}, 0, noAnswer, "unclear"},
		"401 of all":                      {wire.Evidence{Failed: 9, Minutes: 2, Kinds: 1}, 401, answered, "credentials"},
		"403, nothing seen":               {wire.Evidence{}, 403, answered, "credentials"},
		"403, others pass":                {wire.Evidence{Delivered: 50, Failed: 9, Minutes: 2}, 403, answered, "poison"},
		"422, others pass":                {wire.Evidence{Delivered: 118, KindDelivered: 40, Failed: 9, Minutes: 2, Kinds: 14}, 422, answered, "poison"},
		"422, no other passes":            {wire.Evidence{Failed: 9, Minutes: 2, Kinds: 14}, 422, answered, "unclear"},
		"undecodable, others pass":        {wire.Evidence{Delivered: 1, Minutes: 1, Kinds: 1}, 0, "redrive.DecodeError", "poison"},
		"500 of one kind, others pass":    {wire.Evidence{Delivered: 50, Failed: 9, Minutes: 2, Kinds: 1}, 500, answered, "bug"},
		"500 of kinds that pass, too":     {wire.Evidence{Delivered: 50, KindDelivered: 1, Failed: 9, Minutes: 2, Kinds: 1}, 500, answered, "unclear"},
		"a panic":                         {wire.Evidence{Frame: "shop.charge", Delivered: 50, KindDelivered: 50}, 0, "redrive.PanicError", "bug"},
		"an error of a handler":           {wire.Evidence{Delivered: 50, KindDelivered: 50}, 0, "shop.StockError", "unclear"},
		"408 while the breaker is closed": {wire.Evidence{Breaker: "closed", Failed: 3, Minutes: 1, Kinds: 3}, 408, answered, "down"},
	} {
		got, why := daemon.Judge(c.evidence, c.status, c.of)
		if got != c.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
}

// Verdicts of a daemon that delivers: some refused while others pass, and a target that is gone.
func TestVerdictOfWhatIsDelivered(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		target := newReceiver(t, func(body string) int {
			if strings.Contains(body, "bad") {
				return http.StatusUnprocessableEntity
			}
			return http.StatusOK
		})
		d := start(t, parse(t, fmt.Sprintf(`{queues: {hooks: {deliver: {url: %q, allow_private: true}}, gone: {deliver: {url: "http://127.0.0.1:1", allow_private: true}, policy: {max_attempts: 1}}}, grace: 100ms}`, target.URL)), store)
		for i := range 5 {
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", fmt.Sprint("good ", i), "redrive-kind", "order")
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", fmt.Sprint("bad ", i), "redrive-kind", "order")
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/gone/messages", "x")
		}
		for queue, want := range map[string]string{"hooks": "poison", "gone": "down"} {
			d.eventually("five die in "+queue, func() bool {
				q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/"+queue, "")
				return q.Dead == 5 && q.Waiting.All == 0
			})
			for _, c := range get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?queue="+queue, "").Items {
				v := get[wire.Verdict](d, 200, http.MethodGet, "/v1/causes/"+c.Signature+"/verdict?queue="+queue, "")
				if v.Verdict != want || v.Cause.Count != c.Count || v.Cause.Quiet || v.Cause.PerMinute == 0 || v.Evidence.Kinds != 1 || v.Evidence.Minutes == 0 || v.Evidence.Failed < c.Count {
					t.Errorf("%s: %+v", queue, v)
				}
				if queue == "hooks" && (v.Evidence.Delivered != 5 || v.Evidence.KindDelivered != 5 || v.Cause.Status != 422) {
					t.Errorf("%+v", v.Evidence)
				}
			}
		}
	})
}

// The place of a panic shows as its queue's masks let it, and no place in a body to who may not read one.
func TestAVerdictHidesWhatIsMasked(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		var signature string
		for i := range 3 {
			signature = deadOf(t, store, "cards", fmt.Sprint("m-", i), "", func(e *redrive.Entry) {
				f := e.History.First
				f.Types, f.Stack, f.Details = []string{"redrive.PanicError"}, "panic({0x1})\nshop.charge({\"card\":{\"number\":\"4111\"}})(0x1)\n", nil
				e.Body = fmt.Appendf(nil, `{"plan":"gold-%d"}`, i/2)
				e.DiedAt = time.Now()
			}).Signature
		}
		d := start(t, vaultConfig(t), store)
		for token, shared := range map[string]string{"secret-read": "", "secret-payload": `$.plan = "gold-0"`} {
			d.token = token
			_, b := d.send(http.MethodGet, "/v1/causes/"+signature+"/verdict?queue=cards", "")
			var v wire.Verdict
			decode(t, b, &v)
			if v.Verdict != wire.VerdictBug || v.Evidence.Shared != shared || strings.Contains(string(b), "4111") {
				t.Errorf("%s: %s", token, b)
			}
		}
	})
}
