package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// daemon says which versions and clocks this command and the daemons have.
func (d *doctor) daemon(ctx context.Context) error {
	if d.client.local {
		d.say(levelOK, "version", "", "%s", version())
		return nil
	}
	asked := time.Now()
	resp, err := d.client.send(ctx, http.MethodGet, "/v1/me", nil, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if err := json.NewDecoder(resp.Body).Decode(&d.me); err != nil {
		return fmt.Errorf("the answer of %s cannot be read: %w", d.client.where, err)
	}
	d.versions(version())
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		d.clock(date.Sub(asked), time.Since(asked))
	}
	return nil
}

// versions compares that of this command with those of the daemons on the store.
func (d *doctor) versions(own string) {
	if d.me.Version == "" {
		return
	}
	if d.me.Version != own {
		d.say(levelWarn, "version", "use the same one: flags and answers differ between versions; redrive version shows this command's",
			"this command is %s, the daemon %s", own, d.me.Version)
	}
	for _, other := range d.me.Instances {
		if other.Version != d.me.Version {
			d.say(levelWarn, "version", "finish the roll-out: what only newer daemons know is left undone by older ones",
				"the daemon %s on the same store is %s, the one that answers %s", other.ID, other.Version, d.me.Version)
			return
		}
	}
	if d.me.Version == own {
		d.say(levelOK, "version", "", "%s, as the daemon", own)
	}
}

// clocksApart is how far clocks may be apart; the daemon says its own in whole seconds.
const clocksApart = 5 * time.Second

// clock compares this machine's clock with the daemon's, which was so far ahead when it was asked and took so
// long to answer.
func (d *doctor) clock(ahead, took time.Duration) {
	if ahead < -clocksApart || ahead > clocksApart+took {
		d.say(levelWarn, "clock", "let both machines follow the same time servers: timedatectl status",
			"the daemon's and this machine's are %s apart: --since, --until and ages that are shown are off by that", ahead.Round(time.Second).Abs())
	}
}

// unusedFor is how long ago the last use of a token is for it to be named.
const unusedFor = 90 * 24 * time.Hour

// tokens names those that nobody uses and those that end. Only the scope admin sees them.
func (d *doctor) tokens(ctx context.Context) error {
	if d.me.Version == "" || !slices.Contains(d.me.Scopes, string(config.ScopeAdmin)) || len(d.me.Queues) > 0 {
		return nil
	}
	var list wire.List[wire.Token]
	if err := d.client.do(ctx, http.MethodGet, "/v1/tokens", nil, nil, &list); err != nil {
		return err
	}
	for i := range list.Items {
		d.token(&list.Items[i], time.Now())
	}
	return nil
}

func (d *doctor) token(v *wire.Token, now time.Time) {
	const remove = "whoever finds it may use it: remove it from tokens of the configuration, if nobody needs it"
	about := "token " + v.Name
	switch {
	case v.Expired:
		d.say(levelWarn, about, "make another with: redrive token new; or remove it from the configuration", "it ended %s", ago(*v.Expires, now))
	case v.LastUsed == nil:
		d.say(levelWarn, about, remove, "it was never used")
	case now.Sub(*v.LastUsed) > unusedFor:
		d.say(levelWarn, about, remove, "it was last used %s", ago(*v.LastUsed, now))
	}
	if v.Expires != nil && !v.Expired && v.Expires.Sub(now) < tokenEnds {
		d.say(levelWarn, about, "make another with: redrive token new", "it ends %s", ago(*v.Expires, now))
	}
}

// tokenEnds is how long before its end a token is named.
const tokenEnds = 14 * 24 * time.Hour
