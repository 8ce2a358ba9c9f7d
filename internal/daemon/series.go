package daemon

import (
	"net/http"

	"github.com/redrive/redrive/internal/wire"
)

// showSeries shows what this daemon published and delivered of a queue, by minute.
func (a *app) showSeries(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if _, err := parameters(r); err != nil {
		return err
	}
	queue := r.PathValue("queue")
	if _, err := a.existing(r, queue); err != nil {
		return err
	}
	if a.series == nil {
		return notHere("series of deliveries")
	}
	points, since, counted := a.series.Of(queue)
	out := wire.Series{Queue: queue, Since: since.UTC(), Counted: counted, Minutes: make([]wire.Minute, len(points))}
	for i, p := range points {
		out.Minutes[i] = wire.Minute{Start: p.Start, Published: p.Published, Delivered: p.Delivered, Failed: p.Failed, Dead: p.Dead, P95: wire.Duration(p.P95)}
	}
	return writeJSON(w, http.StatusOK, out)
}
