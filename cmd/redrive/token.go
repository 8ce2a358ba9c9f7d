package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// tokenCmd makes and lists tokens.
type tokenCmd struct {
	New  tokenNewCmd  `cmd:"" help:"Make a token; it is printed once and kept nowhere."`
	List tokenListCmd `cmd:"" help:"Look at the tokens of a daemon, and when they were used."`
}

// tokenNewCmd makes a token.
type tokenNewCmd struct {
	Name    string        `default:"token" placeholder:"NAME" help:"Name in logs and in the audit log."`
	Scope   []string      `placeholder:"SCOPE" help:"What it allows: publish, consume, read, read-payload, propose, redrive, purge, admin; may be repeated (default everything)."`
	Queue   []string      `placeholder:"QUEUE" help:"Queue or pattern such as sms.* that it may use; may be repeated (default all)."`
	Rate    config.Rate   `placeholder:"RATE" help:"Messages and requests in a time, such as 100/s."`
	Quota   config.Rate   `placeholder:"QUOTA" help:"The same for longer, such as 100000/day."`
	Expires config.Moment `placeholder:"DATE" help:"When it is no longer good, such as 2027-01-31."`
}

func (*tokenNewCmd) Help() string {
	return examples(
		"redrive token new --name billing --scope publish --queue sms", "prints the token, and the line for tokens: in the configuration",
		"redrive token new --name ops --scope redrive --scope purge --expires 2027-01-31", "redrives and drops until then",
	)
}

// newToken is what is printed with --json.
type newToken struct {
	Token string        `json:"token"`
	Entry *config.Token `json:"entry"`
	Hash  string        `json:"hash"`
}

// Run prints the token and its entry.
func (c *tokenNewCmd) Run(t *terminal) error {
	token, id, hash := config.NewToken()
	entry := config.Token{ID: id, Name: c.Name, Hash: hash, Queues: c.Queue, Rate: c.Rate, Quota: c.Quota, Expires: c.Expires}
	for _, s := range c.Scope {
		for name := range strings.SplitSeq(s, ",") {
			entry.Scopes = append(entry.Scopes, config.Scope(strings.TrimSpace(name)))
		}
	}
	if err := (&config.Config{Listen: config.DefaultListen, Store: config.Default().Store, Tokens: []config.Token{entry}}).Check(); err != nil {
		return usagef("%s", strings.NewReplacer("tokens[0].", "", "\n  hint: ", "; ").Replace(err.Error()))
	}
	if t.json {
		return json.NewEncoder(t.out).Encode(newToken{Token: token, Entry: &entry, Hash: hash})
	}
	fmt.Fprintln(t.out, token)
	fmt.Fprintf(t.err, "\nThis is the only time that it is shown. Add its hash to the configuration:\n\ntokens:\n  - %s\n", entryLine(&entry))
	return nil
}

// entryLine is a token as a line of YAML. What stands in quotes is JSON, which YAML
// takes.
func entryLine(e *config.Token) string {
	quoted := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil { // a string cannot fail to encode
			panic(err)
		}
		return string(b)
	}
	parts := []string{"id: " + quoted(e.ID), "name: " + quoted(e.Name), "hash: " + quoted(e.Hash)}
	if len(e.Scopes) > 0 {
		var names []string
		for _, s := range e.Scopes {
			names = append(names, string(s))
		}
		parts = append(parts, "scopes: ["+strings.Join(names, ", ")+"]")
	}
	if len(e.Queues) > 0 {
		var names []string
		for _, q := range e.Queues {
			names = append(names, quoted(q))
		}
		parts = append(parts, "queues: ["+strings.Join(names, ", ")+"]")
	}
	for _, limit := range []struct {
		key string
		r   config.Rate
	}{{"rate", e.Rate}, {"quota", e.Quota}} {
		if limit.r.Per > 0 {
			parts = append(parts, limit.key+": "+limit.r.String())
		}
	}
	if !e.Expires.IsZero() {
		parts = append(parts, "expires: "+quoted(e.Expires.UTC().Format("2006-01-02T15:04:05Z07:00")))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// tokenListCmd lists the tokens of a daemon.
type tokenListCmd struct{ remote }

// Run prints a line for each.
func (c *tokenListCmd) Run(ctx context.Context, t *terminal, cl *client) error {
	var list wire.List[wire.Token]
	if err := cl.do(ctx, http.MethodGet, "/v1/tokens", nil, nil, &list); err != nil {
		return err
	}
	if t.json {
		return json.NewEncoder(t.out).Encode(list)
	}
	for i := range list.Items {
		one := &list.Items[i]
		used := "never used"
		if one.LastUsed != nil {
			used = "used " + one.LastUsed.Format("2006-01-02 15:04")
		}
		if one.Expired {
			used = "expired"
		}
		fmt.Fprintf(t.out, "%s  %s  %s  %s\n", clean(one.ID), clean(one.Name), strings.Join(one.Scopes, ","), used)
	}
	return nil
}

// secretCmd makes secrets.
type secretCmd struct {
	New secretNewCmd `cmd:"" help:"Make a secret that signs deliveries; it is printed once and kept nowhere."`
}

// secretNewCmd makes a secret.
type secretNewCmd struct{}

func (*secretNewCmd) Help() string {
	return examples("redrive secret new", "put it into the environment of daemon and receiver, and secret: env:NAME into deliver:")
}

// Run prints the secret.
func (*secretNewCmd) Run(t *terminal) error {
	secret := delivery.NewSecret()
	if t.json {
		return json.NewEncoder(t.out).Encode(map[string]string{"secret": secret})
	}
	fmt.Fprintln(t.out, secret)
	return nil
}
