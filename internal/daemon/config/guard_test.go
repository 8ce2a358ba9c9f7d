package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/internal/daemon/config"
)

const guarded = `
queues:
  sms:
    deliver:
      timeout: 5s
      secret: env:SMS_SECRET
      headers: {X-Account: "7"}
      endpoints:
        - {name: north, url: "https://north.example/send", rate: 3000/s, burst: 50, concurrency: 64, headers: {Authorization: "env:NORTH"}}
        - {name: south, url: "https://south.example/send", weight: 3, timeout: 2s, secret: env:SOUTH_SECRET}
    guard:
      preset: payment
      order: weighted
      repeat: never
      retries: 1
      failover: 10%
      keep_results: 10m
      result_to: https://caller.example/results
      health: {off: [network_errors], error_rate: 40%, min_calls: 10, window: 20s, slow_after: 1s, trend_factor: 3}
      exit: {after: 1m, start: 1%}
      pace: {fixed: 60/m}
`

func TestAGuardIsUnderstood(t *testing.T) {
	c, err := config.Parse("redrive.yaml", []byte(guarded))
	if err != nil {
		t.Fatal(err)
	}
	q := c.Queues["sms"]
	h, x, p := q.Guard.Rules()
	if d := cmp.Diff(guard.Health{NetworkErrors: -1, ErrorRate: 0.4, MinCalls: 10, Window: 20 * time.Second,
		SlowAfter: time.Second, TrendFactor: 3}, h); d != "" {
		t.Errorf("health (-want +got)\n%s", d)
	}
	if d := cmp.Diff(guard.Exit{After: time.Minute, Start: 0.01}, x); d != "" {
		t.Errorf("exit (-want +got)\n%s", d)
	}
	if d := cmp.Diff(guard.Pace{Fixed: 1}, p); d != "" {
		t.Errorf("pace (-want +got)\n%s", d)
	}
	names, targets := q.Deliver.Targets()
	if len(names) != 2 || names[1] != "south" || q.Guard.EndpointOrder() != guard.ByWeight {
		t.Fatalf("endpoints %v", names)
	}
	north, south := targets[0], targets[1]
	if north.URL != "https://north.example/send" || north.Timeout.Std() != 5*time.Second || north.Rate.PerSecond() != 3000 || len(north.Headers) != 2 ||
		north.Secret.Reference() != "env:SMS_SECRET" {
		t.Errorf("north %+v", north)
	}
	if south.Timeout.Std() != 2*time.Second || len(south.Headers) != 1 || south.Secret.Reference() != "env:SOUTH_SECRET" {
		t.Errorf("south %+v", south)
	}
	results := c.Queues[q.Guard.ResultQueue("sms")]
	if results == nil || results.Deliver.URL != "https://caller.example/results" || !results.Deliver.Secret.Equal(q.Deliver.Secret) {
		t.Errorf("the queue of the results is %+v", results)
	}
	if q.Guard.IsShared(driver.Caps{Exclusive: true}) || !q.Guard.IsShared(driver.Caps{}) {
		t.Error("who shares")
	}
	if err := c.Check(); err != nil {
		t.Errorf("checked once more: %v", err)
	}
}

func TestWhatIsWrongWithAGuard(t *testing.T) {
	tests := []struct{ yaml, path, hint string }{
		{"{guard: {}}", "queues.sms.guard", "add deliver"},
		{"{deliver: {url: 'http://a.example', endpoints: [{name: a, url: 'http://a.example'}]}, guard: {}}", "queues.sms.deliver.url", "one of the endpoints"},
		{"{deliver: {endpoints: [{name: a, url: 'http://a.example'}]}}", "queues.sms.deliver.endpoints", "add guard"},
		{"{deliver: {endpoints: [{name: a, url: 'http://a.example'}, {name: a, url: 'http://b.example'}]}, guard: {}}", "queues.sms.deliver.endpoints[1].name", "own name"},
		{"{deliver: {endpoints: [{name: 'a b', url: 'http://a.example'}]}, guard: {}}", "queues.sms.deliver.endpoints[0].name", "letters"},
		{"{deliver: {endpoints: [{name: a, url: ftp}]}, guard: {}}", "queues.sms.deliver.endpoints[0].url", "http://"},
		{"{deliver: {rate: 3/s, endpoints: [{name: a, url: 'http://a.example'}]}, guard: {}}", "queues.sms.deliver.rate", "endpoints"},
		{"{deliver: {url: 'http://a.example'}, guard: {preset: paymnt}}", "queues.sms.guard.preset", "payment"},
		{"{deliver: {url: 'http://a.example'}, guard: {repeat: always}}", "queues.sms.guard.repeat", "same"},
		{"{deliver: {url: 'http://a.example'}, guard: {health: {off: [eror_rate]}}}", "queues.sms.guard.health.off[0]", "error_rate"},
		{"{deliver: {url: 'http://a.example'}, guard: {health: {min_calls: 0}}}", "queues.sms.guard.health.min_calls", "1 or more"},
		{"{deliver: {url: 'http://a.example'}, guard: {health: {slow_afer: 1s}}}", "queues.sms.guard.health.slow_afer", "slow_after"},
		{"{deliver: {url: 'http://a.example'}, guard: {exit: {max_hold: 2s}}}", "queues.sms.guard.exit.max_hold", "known here: after, start"},
		{"{deliver: {url: 'http://a.example'}, guard: {result_to: malls}}", "queues.sms.guard.result_to", "mails"},
		{"{deliver: {url: 'http://a.example'}, guard: {result_to: sms}}", "queues.sms.guard.result_to", "another queue"},
		{"{deliver: {url: 'http://a.example'}, guard: {result_to: 'ftp://x'}}", "queues.sms.guard.result_to", "http://"},
	}
	for _, tt := range tests {
		_, err := config.Parse("redrive.yaml", []byte("queues:\n  mails: {}\n  sms: "+tt.yaml+"\n"))
		list, ok := err.(config.Errors) //nolint:errorlint // Parse returns it bare
		if !ok || len(list) != 1 {
			t.Errorf("%s: %v", tt.yaml, err)
			continue
		}
		if e := list[0]; e.Path != tt.path || e.Line != 3 || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("%s: %v", tt.yaml, e)
		}
	}
}

// What a guard's rules are called in a configuration is what the library calls them, and there
// is no other.
func TestTheRulesOfAGuardAreTheLibrarys(t *testing.T) {
	for of, pair := range map[string][2]reflect.Type{
		"health": {reflect.TypeFor[config.Health](), reflect.TypeFor[guard.Health]()},
		"exit":   {reflect.TypeFor[config.Exit](), reflect.TypeFor[guard.Exit]()},
		"pace":   {reflect.TypeFor[config.Pace](), reflect.TypeFor[guard.Pace]()},
	} {
		var names [2][]string
		for i, at := range pair {
			for _, f := range reflect.VisibleFields(at) {
				if f.Name != "Off" { // how a file writes a negative number
					names[i] = append(names[i], f.Name)
				}
			}
		}
		if d := cmp.Diff(names[1], names[0]); d != "" {
			t.Errorf("%s: %s", of, d)
		}
	}
}
