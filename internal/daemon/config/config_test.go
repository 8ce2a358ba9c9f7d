package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
)

func TestEveryKeyIsUnderstood(t *testing.T) {
	c, err := config.Parse("redrive.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	sms := c.Queues["sms"]
	if got, want := sms.Settings(), (driver.QueueSettings{OrderByKey: true, DeadRelease: true, Remember: 48 * time.Hour}); got != want {
		t.Errorf("settings %+v, want %+v", got, want)
	}
	if d := sms.Deliver; d.Rate.PerSecond() != 3000 || d.Timeout.Std() != 5*time.Second || d.MaxResponse != 4096 || len(d.SigningSecrets()) != 2 ||
		d.Headers["X-Version"].IsZero() || !d.AllowPrivate || len(d.AllowCIDRs) != 2 {
		t.Errorf("deliver %+v", d)
	}
	if got, want := sms.Limits, (config.Limits{Depth: 1_000_000, Age: config.Duration(90 * time.Minute), Soft: 0.8}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	if c.Queues["mail"] == nil {
		t.Error("a queue without anything is missing")
	}
}

func TestPoliciesInheritFromTheQueue(t *testing.T) {
	c, err := config.Parse("redrive.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	policies := c.PoliciesOf("sms")
	choose := policies.Of
	type chosen struct {
		Name        string
		MaxAttempts int
		MaxCrashes  int
		Inline      int
		MaxAge      time.Duration
		Timeout     time.Duration
		Drop        bool
		Backoff     redrive.Backoff
		Classified  bool
	}
	of := func(m redrive.Message) chosen {
		p := choose(&m)
		return chosen{p.Name, p.MaxAttempts, p.MaxCrashes, p.Inline, p.MaxAge, p.Timeout, p.DropExpired, p.Backoff, p.Classifier != nil}
	}
	const week = 7 * 24 * time.Hour
	plusMinus := redrive.Exponential{Base: time.Second, Multiplier: 2, Max: 5 * time.Minute, Jitter: redrive.JitterPlusMinus, Spread: 500 * time.Millisecond}
	tenant := func(v string) redrive.Headers { return redrive.Headers{{Name: "tenant", Value: []byte(v)}} }
	for _, tc := range []struct {
		name    string
		message redrive.Message
		want    chosen
	}{
		{"the queue's own", redrive.Message{}, chosen{"sms", 5, 7, 1, week, 10 * time.Second, false, plusMinus, true}},
		{"of a kind", redrive.Message{Kind: "sms.otp"}, chosen{"sms/sms.otp", 2, 7, 1, 0, 10 * time.Second, true, redrive.Fixed{Interval: 2 * time.Second}, true}},
		{
			"a named one by a rule, before the kind", redrive.Message{Kind: "sms.otp", Headers: tenant("gold")},
			chosen{"gold", 50, 7, 1, week, 10 * time.Second, false, redrive.Schedule{time.Second, 5 * time.Second, time.Minute}, true},
		},
		{"an inline one by a rule", redrive.Message{Headers: tenant("42")}, chosen{"sms/tenant=42", 5, 7, 1, week, time.Minute, false, plusMinus, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, of(tc.message)); diff != "" {
				t.Error(diff)
			}
		})
	}
	unknown := c.PoliciesOf("unknown")
	if p := unknown.Of(&redrive.Message{}); p.MaxAttempts != redrive.DefaultMaxAttempts || p.Classifier != nil {
		t.Errorf("a queue that is not named has %+v", p)
	}
}

func TestErrorsSayWhereAndWhatToDo(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string // each in the error's text
	}{
		{"a misspelt key", "queues:\n  sms:\n    policy: {max_attemps: 5}\n", []string{"f.yaml:3:14: queues.sms.policy.max_attemps: unknown key", "   3 |     policy: {max_attemps: *}\n       |              ^", "did you mean max_attempts?"}},
		{"a key of another system", "queues: {sms: {policy: {max_retries: 5}}}", []string{"did you mean max_attempts?"}},
		{"a key at the wrong level", "queues: {sms: {max_attempts: 5}}", []string{"max_attempts belongs below policy"}},
		{"a key that nothing is like", "queues: {sms: {colour: red}}", []string{"known here: source, dead_letters"}},
		{"a duration in words", "grace: 5 seconds", []string{"f.yaml:1:8: grace:", `"5 seconds" is not a duration`, "write 5s"}},
		{"a duration without unit", "grace: 5", []string{"the unit is missing: write 5s"}},
		{"a negative duration", "grace: -5s", []string{"zero or more"}},
		{"a comma in a duration", `grace: "1,5h"`, []string{"write 1.5h"}},
		{"a size without its base", "max_body: 1M", []string{"1MB (powers of 1000) or 1MiB"}},
		{"a rate without unit", "queues: {sms: {deliver: {url: http://a.example, rate: 50}}}", []string{"write 50/s"}},
		{"backups without a time", "backup: {keep: 3}", []string{"backup.every", "it is missing"}},
		{"backups every second", "backup: {every: 1s, keep: -1}", []string{"less than 1m", "backup.keep", "negative"}},
		{"backups of a server", "store: postgres://db.example/x\nbackup: {every: 1h}", []string{"backup: the store is not in this process", "pg_dump"}},
		{"a share without its sign", "limits: {depth: 5, soft: 80}", []string{"write 80%"}},
		{"a yes", "queues: {sms: {deliver: {url: http://a.example, allow_private: yes}}}", []string{"write true"}},
		{"a list where a mapping belongs", "queues: [sms]", []string{"expected a mapping (key: value), found a list"}},
		{"a value where a list belongs", "queues: {sms: {classify: {permanent: 400}}}", []string{"put it into brackets"}},
		{"a key twice", "grace: 1s\ngrace: 2s", []string{"f.yaml:2:1: grace: this key is here twice", "line 1"}},
		{"two documents", "grace: 1s\n---\ngrace: 2s", []string{"second document"}},
		{"tabs", "queues:\n\tsms: {}\n", []string{"f.yaml:2", "spaces"}},
		{"not YAML", "queues: {", []string{"f.yaml:1"}},
		{"a tag", "grace: !!str 5s", []string{"tags are not understood"}},
		{"an unknown anchor", "grace: *x", []string{"no anchor &x"}},
		{"a trusted header of nobody", "tokens: [{name: a, hash: \"" + config.HashToken("a") + "\"}]\nui: {trusted_header: X-User}", []string{"f.yaml:2:22: ui.trusted_header", "without trusted_proxies", "127.0.0.1/32"}},
		{"a trusted header without tokens", "ui: {trusted_header: X-User, trusted_proxies: [127.0.0.1/32]}", []string{"ui.trusted_header", "there is no token", "redrive token new"}},
		{"a trusted header of a browser", "ui: {trusted_header: Cookie, trusted_proxies: [127.0.0.1/32]}", []string{"ui.trusted_header", `"Cookie" is not a header`, "X-Forwarded-User"}},
		{"a trusted proxy by its address", "ui: {trusted_header: X-User, trusted_proxies: [127.0.0.1]}", []string{"ui.trusted_proxies[0]", `"127.0.0.1" is not a network`, "10.1.0.0/16"}},
		{"a role of nobody", "ui: {role: redrive}", []string{"ui.role", "add trusted_header"}},
		{"proxies without a header", "ui: {trusted_proxies: [10.0.0.0/8]}", []string{"ui.trusted_proxies", "add trusted_header"}},
		{"a role that nobody has", "ui: {trusted_header: X-User, trusted_proxies: [10.0.0.0/8], role: publish}", []string{"ui.role", `"publish" is not known`, "read, read-payload, propose, redrive, purge, admin"}},
		{"an open address", "listen: 0.0.0.0:7333", []string{"f.yaml:1:9: listen:", "no token", "tokens: [{name"}},
		{"any address", `listen: ":7333"`, []string{"no token"}},
		{"no port", "listen: localhost", []string{"write HOST:PORT"}},
		{"an unknown store", "store: oracle://u:hunter2@localhost/x", []string{"oracle", "postgres://"}},
		{"a store nowhere", "store: 'postgres:'", []string{"postgres://user@host/name"}},
		{"no store", "store: /var/lib/x", []string{"write sqlite:"}},
		{"an unknown broker", "queues: {sms: {source: zmq://u:hunter2@localhost/x}}", []string{"queues.sms.source", "kafka://"}},
		{"a broker without a topic", "queues: {sms: {source: kafka://localhost:9092, deliver: {url: https://x.example}}}", []string{"queues.sms.source", "kafka://host:9092/topic"}},
		{"a stream without a name", "queues: {sms: {source: nats://localhost:4222, deliver: {url: https://x.example}}}", []string{"queues.sms.source", "nats://host:4222/STREAM"}},
		{"a RabbitMQ without a queue", "queues: {sms: {source: \"rabbitmq://localhost/shop\", deliver: {url: https://x.example}}}", []string{"queues.sms.source", "rabbitmq://host:5672/?queue=name"}},
		{"a broker without a target", "queues: {sms: {source: kafka://localhost/x}}", []string{"queues.sms.source", "deliver"}},
		{"a list that two queues take", "queues: {a: {source: \"redislist://h/0?list=jobs\", deliver: {url: https://x.example}}, b: {source: \"redislist://h/0?list=jobs&from=left\", deliver: {url: https://x.example}}}",
			[]string{"queues.a.source", "queues.b.source", "same list"}},
		{"order by key of a source that keeps none", "queues: {sms: {source: \"nats://localhost/S\", order: key, deliver: {url: https://x.example}}}", []string{"queues.sms.source", "kafka://"}},
		{"order by key of native retries", "queues: {sms: {source: kafka://localhost/x, dead_letters: native, order: key, deliver: {url: https://x.example}}}", []string{"queues.sms.source", "parked"}},
		{"native dead letters", "queues: {sms: {dead_letters: native}}", []string{"queues.sms.dead_letters", "the queue has no source"}},
		{"a bad queue name", "queues: {SMS: {}}", []string{"f.yaml:1:", `"SMS"`, "a-z"}},
		{"a reserved queue name", "queues: {_results: {}}", []string{"reserved"}},
		{"no address", "queues: {sms: {deliver: {timeout: 5s}}}", []string{"queues.sms.deliver.url: the target has no address"}},
		{"another scheme", "queues: {sms: {deliver: {url: ftp://x.example}}}", []string{"http:// or https://"}},
		{"a password in the address", "queues: {sms: {deliver: {url: https://u:hunter2@x.example}}}", []string{"Authorization"}},
		{"a matcher that matches nothing", "queues: {sms: {classify: {permanent: [400, teapot]}}}", []string{"queues.sms.classify.permanent[1]", "type:PATTERN"}},
		{"no attempts", "queues: {sms: {policy: {max_attempts: 0}}}", []string{"1 or more"}},
		{"a policy that is not there", "policies: {gold: {}}\nqueues: {sms: {policy: golf}}", []string{`f.yaml:2:24: queues.sms.policy: there is no policy "golf"`, "did you mean gold?"}},
		{"a backoff that is not there", "policies: {a: {backoff: {type: exponental}}}", []string{"did you mean exponential?"}},
		{"a key of another backoff", "policies: {a: {backoff: {type: fixed, interval: 1s, base: 2s}}}", []string{"base does not apply"}},
		{"a jitter that is not there", "policies: {a: {backoff: {jitter: lots}}}", []string{"policies.a.backoff.jitter", "full, none"}},
		{"a rule without header", "queues: {sms: {rules: [{match: {tenant: x}, policy: {timeout: 1s}}]}}", []string{"write header.NAME"}},
		{"a hash that is none", "tokens: [{name: a, hash: secret}]", []string{"tokens[0].hash", "sha256sum"}},
		{"a scope that is not there", "tokens: [{name: a, hash: \"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\", scopes: [publsh]}]", []string{"did you mean publish?"}},
		{"a header of the delivery", "queues: {sms: {deliver: {url: http://a.example, headers: {Webhook-Id: x}}}}", []string{"set by the delivery"}},
		{"a secret that cannot sign", "queues: {sms: {deliver: {url: http://a.example, secret: hunter2}}}", []string{"queues.sms.deliver.secret", "secret: *******}", "env:NAME"}},
		{"env without name", `queues: {sms: {deliver: {url: http://a.example, secret: "env:"}}}`, []string{"write env:NAME"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := config.Parse("f.yaml", []byte(tc.text))
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error lacks %q:\n%s", part, err)
				}
			}
		})
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte("listn: x\ngrace: 5\nqueues:\n  sms:\n    policy: nope\n"))
	var list config.Errors
	if !errors.As(err, &list) || len(list) != 3 {
		t.Fatalf("want three errors, got %v", err)
	}
	for i, line := range []int{1, 2, 5} {
		if list[i].Line != line {
			t.Errorf("error %d is in line %d, want %d", i, list[i].Line, line)
		}
	}
}

func TestAnchorsAndMerges(t *testing.T) {
	c, err := config.Parse("f.yaml", []byte(`
policies:
  base: &base {max_attempts: 4, timeout: 3s}
  more: {<<: *base, timeout: 9s}
queues:
  a: {policy: *base}
`))
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Policies["more"]; p.MaxAttempts != 4 || p.Timeout.Std() != 9*time.Second {
		t.Errorf("more is %+v", p)
	}
	if p := c.PoliciesOf("a").Default; p.MaxAttempts != 4 {
		t.Errorf("the policy of a is %+v", p)
	}
}

func TestABombOfAliasesIsRefused(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 {x: 1}\n")
	for i := 1; i < 30; i++ {
		prev := "*a" + string(rune('a'+i-1))
		if i == 1 {
			prev = "*a0"
		}
		b.WriteString("k" + string(rune('a'+i)) + ": &a" + string(rune('a'+i)) + " {<<: " + prev + ", p: " + prev + "}\n")
	}
	if _, err := config.Parse("f.yaml", []byte(b.String())); err == nil {
		t.Error("it was accepted")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := config.Load(filepath.Join(dir, "none.yaml")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := config.Load(dir); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("a directory: %v", err)
	}
	file := filepath.Join(dir, "redrive.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default(), c); diff != "" {
		t.Errorf("an empty file is not the default: %s", diff)
	}
}

func TestTheExampleIsRight(t *testing.T) {
	c, err := config.Load("../../../examples/webhook/redrive.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies := c.PoliciesOf("hooks")
	choose := policies.Of
	if p := choose(&redrive.Message{Kind: "ping"}); p.MaxAttempts != 2 || p.MaxAge != 24*time.Hour || p.Classifier == nil {
		t.Errorf("the policy of a ping is %+v", p)
	}
}

func TestDefaultIsRight(t *testing.T) {
	c := config.Default()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	c.Listen = "0.0.0.0:7333"
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("an open address without a token: %v", err)
	}
}
