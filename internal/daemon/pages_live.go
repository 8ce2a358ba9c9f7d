//go:build !noui

package daemon

import (
	"net/http"
	"time"

	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/daemon/ui"
)

// Hold implements [ui.Door].
func (d door) Hold(r *http.Request, t ui.Ticket) (held *http.Request, release func()) {
	l := d.a.live.Load()
	if l == nil { // another program lets people in
		return r, func() {}
	}
	if l.tokens == nil {
		return gateway.Within(l.open.ctx, r)
	}
	who, p := l.visiting(visitor{t.ID, string(t.Digest), t.Person}, time.Now())
	if p != nil { // it was revoked since it entered
		over := newGrant()
		over.end(p)
		return gateway.Within(over.ctx, r)
	}
	return gateway.Within(who.grant.ctx, r)
}
