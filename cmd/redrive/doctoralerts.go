package main

import (
	"context"
	"net/http"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// alerts names the receivers that take nothing, and says if there are none.
func (d *doctor) alerts(ctx context.Context) error {
	var list wire.Alerts
	if err := d.client.do(ctx, http.MethodGet, "/v1/alerts", nil, nil, &list); err != nil {
		return err
	}
	if len(list.Receivers) == 0 && d.me.Version != "" {
		d.say(levelWarn, "alerts", "name one under alerts.receivers of the configuration, then: redrive alerts --test", "there is no receiver: nobody hears of dead letters, a queue that is stuck or a full disk who does not look")
	}
	failing := 0
	for _, r := range list.Receivers {
		if r.FailingSince != nil {
			failing++
			d.quote(levelBad, "alerts", "redrive alerts --test", "receiver %s (%s) has taken nothing since %s: %s", r.Name, r.To, r.FailingSince.Local().Format(time.DateTime), r.Error)
		}
	}
	if n := len(list.Receivers); n > 0 && failing == 0 {
		d.say(levelOK, "alerts", "", "%d %s; nothing that was sent was refused", n, plural(n, "receiver", "receivers"))
	}
	return nil
}
