package daemon_test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// Causes tell which of them grow, and when their messages died.
func TestCausesGrow(t *testing.T) {
	store := memory.New()
	now := time.Now()
	for i, ago := range map[string]time.Duration{"grows": 0, "grew": 30 * time.Minute, "quiet": 30 * time.Hour} {
		var put []redrive.Entry
		for n := range 5 {
			e := redrive.Entry{Message: redrive.Message{Queue: "sms", ID: fmt.Sprintf("%s-%d", i, n)}, State: redrive.StateDead, Reason: redrive.ReasonPermanent, DiedAt: now.Add(-ago)}
			if i == "grows" {
				e.DiedAt = now.Add(-time.Duration(n) * time.Minute)
			}
			e.History.Record(&redrive.Failure{Message: i, Signature: i}, true)
			put = append(put, e)
		}
		if _, err := store.Apply(t.Context(), driver.Batch{Put: put}); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, parse(t, "queues: {sms: {}, mail: {}}"), store)
	causes := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?queue=sms", "")
	if len(causes.Items) != 3 || !causes.Complete {
		t.Fatalf("%+v", causes)
	}
	for _, c := range causes.Items {
		var sum int64
		for _, n := range c.Minutes {
			sum += n
		}
		grows, quiet, within := c.Signature == "grows", c.Signature != "grows", c.Signature != "quiet"
		if c.Count != 5 || c.Growing != grows || c.Quiet != quiet || (c.PerMinute == 1) != grows || (len(c.Minutes) == 60) != within || within && sum != 5 {
			t.Errorf("%+v", c)
		}
	}
	deaths := get[wire.List[wire.Deaths]](d, 200, http.MethodGet, "/v1/causes/quiet/deaths", "").Items
	if len(deaths) != 1 || deaths[0].Queue != "sms" || deaths[0].Reason != "permanent" || len(deaths[0].Buckets) != 1 || deaths[0].Buckets[0].Width != "1h" || deaths[0].Buckets[0].Count != 5 {
		t.Errorf("%+v", deaths)
	}
	for _, path := range []string{"?queue=mail", "?since=1h", "?reason=manual"} {
		if none := get[wire.List[wire.Deaths]](d, 200, http.MethodGet, "/v1/causes/quiet/deaths"+path, ""); len(none.Items) != 0 {
			t.Errorf("%s: %+v", path, none)
		}
	}
	d.refused(400, "invalid", http.MethodGet, "/v1/causes/quiet/deaths?kind=k", "")
}

// deadOf puts a dead letter that a target refused.
func deadOf(t *testing.T, store driver.Store, queue, id, answer string, change ...func(*redrive.Entry)) *redrive.Failure {
	t.Helper()
	f := &redrive.Failure{At: time.Now(), Attempt: 1, Types: []string{"delivery.ResponseError"}, Message: "the target answered 422 Unprocessable Entity",
		Details: map[string]string{driver.DetailStatus: "422", driver.DetailAnswer: answer}}
	f.Signature = driver.Signature(f)
	e := redrive.Entry{Message: redrive.Message{Queue: queue, ID: id, Kind: "order", Body: []byte(`{"n":1}`)}, State: redrive.StateDead, Reason: redrive.ReasonPermanent, DiedAt: time.Now()}
	e.History.Record(f, true)
	for _, f := range change {
		f(&e)
	}
	errs, err := store.Apply(t.Context(), driver.Batch{Put: []redrive.Entry{e}})
	if err != nil || driver.FirstError(errs) != nil {
		t.Fatal(err, errs)
	}
	return f
}

// A cause carries the status and what the target's answers have in common, in lists and in dry
// runs: values only for who may read payload, and never what is masked.
func TestCausesTellWhatTheTargetSaid(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		deadOf(t, store, "open", "a", `{"error":"no field x","customer":"Jane"}`)
		deadOf(t, store, "open", "b", `{"error":"no field x","customer":"Bob"}`)
		deadOf(t, store, "cards", "c", `{"detail":{"card":{"number":"4111"}},"card":{"code":7,"number":{"message":"4111"}}}`)
		deadOf(t, store, "cards", "d", "card 4111 is unknown")
		d := start(t, vaultConfig(t), store)
		for token, want := range map[string]map[string]int64{
			"secret-read":    {`{"error":…,"customer":…}`: 2, `{"detail":{"card":{"number":…}},"card":{"code":…,"number":…}}`: 1, "": 1},
			"secret-payload": {`{"error":"no field x","customer":…}`: 2, `{"detail":{"card":{"number":…}},"card":{"code":7,"number":…}}`: 1, "***": 1},
			"secret-admin":   {`{"error":"no field x","customer":…}`: 2, `{"detail":{"card":{"number":…}},"card":{"code":7,"number":…}}`: 1, "***": 1},
		} {
			d.token = token
			list := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes", "").Items
			if token != "secret-read" && token != "secret-payload" {
				dry := get[wire.DryRun](d, 200, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{},"dry_run":true}`)
				list = append(list, dry.Causes...)
				for answer := range want {
					want[answer] *= 2
				}
			}
			got := make(map[string]int64)
			for _, c := range list {
				got[c.Answer] += c.Count
				if c.Status != 422 || c.First.IsZero() || c.Last.Before(c.First) {
					t.Errorf("%+v", c)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", token, got, want)
			}
		}
	})
}
