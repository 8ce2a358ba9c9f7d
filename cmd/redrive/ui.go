package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// uiCmd prints a link to the dashboard.
type uiCmd struct {
	remote `embed:""`
}

func (*uiCmd) Help() string {
	return examples("redrive ui --data ./redrive-data", "a link for a browser on this machine, by the daemon's socket: whoever may open it may do everything",
		"redrive ui --server https://redrive.example.com", "a link that does what the token in REDRIVE_TOKEN allows")
}

// Run prints the link, and on the terminal how long it is good.
func (c *uiCmd) Run(ctx context.Context, t *terminal, client *client) error {
	var login wire.Login
	if err := client.do(ctx, http.MethodPost, "/v1/logins", nil, nil, &login); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(login)
	}
	fmt.Fprintln(t.out, login.URL)
	if login.Expires != nil {
		t.note("good once, within %s", time.Until(*login.Expires).Round(time.Second))
	}
	return nil
}
