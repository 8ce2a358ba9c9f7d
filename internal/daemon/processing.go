package daemon

import (
	"net/http"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// processing lists what is in flight of a queue, at its source and in the store: those
// whose lease ends first.
func (a *app) processing(w http.ResponseWriter, r *http.Request, _ *caller) error {
	v, err := parameters(r, "limit")
	if err != nil {
		return err
	}
	limit, err := parseLimit(v)
	if err != nil {
		return err
	}
	queue := r.PathValue("queue")
	if _, err := a.existing(r, queue); err != nil {
		return err
	}
	q := redrive.Query{Queue: queue, State: redrive.StateLeased, Limit: limit}
	limit = q.PageLimit()
	var all []redrive.Entry
	complete := true
	if src, ok := driver.As[driver.ProcessingSource](a.sources.of(queue)); ok {
		if all, err = src.Processing(r.Context(), queue, limit); err != nil {
			return err
		}
		complete = len(all) < limit
	}
	page, err := a.store.Find(r.Context(), q)
	if err != nil {
		return err
	}
	all = append(all, page.Entries...)
	slices.SortStableFunc(all, func(x, y redrive.Entry) int { return x.Until.Compare(y.Until) })
	list := wire.List[wire.Message]{Items: []wire.Message{}, Complete: complete && page.Next == "" && len(all) <= limit}
	for i := range all[:min(len(all), limit)] {
		list.Items = append(list.Items, a.summary(&all[i]))
	}
	return writeJSON(w, http.StatusOK, list)
}

// monitor tells how the stream of a queue stands, where the store keeps one.
func (a *app) monitor(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if _, err := parameters(r); err != nil {
		return err
	}
	queue := r.PathValue("queue")
	if _, err := a.existing(r, queue); err != nil {
		return err
	}
	m, ok := driver.As[driver.StreamStore](a.store)
	if !ok {
		return problem.New(http.StatusNotFound, "no-monitor", "The store keeps no stream to monitor", "it is "+a.store.Caps().Name,
			"GET /v1/queues/"+queue+" and /v1/queues/"+queue+"/processing tell what waits and what is in flight")
	}
	found, err := m.Monitor(r.Context(), queue)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, monitorOf(found))
}

func monitorOf(m *driver.StreamMonitor) wire.Monitor {
	out := wire.Monitor{
		Queue: m.Queue, Stream: m.Stream, Entries: m.Entries, Unclaimed: m.Unclaimed, Indexed: m.Indexed, Oldest: roundly(m.Oldest),
		Consumers: []wire.MonitorConsumer{}, Attempts: m.Attempts, Looked: m.Looked, Complete: m.Complete,
		Dead: wire.MonitorDead{
			Stream: m.Dead.Stream, Length: m.Dead.Length, Added: m.Dead.Added, LastHour: m.Dead.LastHour, Oldest: roundly(m.Dead.Oldest), Groups: m.Dead.Groups,
		},
	}
	for _, c := range m.Consumers {
		out.Consumers = append(out.Consumers, wire.MonitorConsumer{
			Name: c.Name, Pending: c.Pending, Leased: c.Leased, Overdue: c.Overdue, Idle: roundly(c.Idle), LongestOverdue: roundly(c.Longest),
		})
	}
	for _, p := range m.Partitions {
		out.Partitions = append(out.Partitions, wire.MonitorPartition(p))
	}
	return out
}

// roundly drops what nobody reads of a duration.
func roundly(d time.Duration) wire.Duration { return wire.Duration(d.Round(time.Millisecond)) }
