package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/daemon/events"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// The topics that one may listen to.
const (
	topicQueues = "queues"
	topicCauses = "causes"
	topicPlans  = "plans"
)

var allTopics = []string{topicQueues, topicCauses, topicPlans}

// Times of a stream of events.
const (
	heartbeat   = 15 * time.Second // without an event
	eventWrite  = 10 * time.Second // for one write
	streamGrace = time.Second / 2  // to end a stream that is over
)

// rights names what a caller sees: callers of one name see the same.
func (c *caller) rights() string {
	key := string(c.view())
	if len(c.queues) > 0 {
		key += "\x00" + c.name + "\x00" + strings.Join(c.queues, "\x00") // the plans of its own, too
	}
	return key
}

// watch reads what the topics are about.
func (a *app) watch(ctx context.Context, topics map[string]bool) (events.View[*caller], error) {
	now, err := a.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	var queues []wire.Queue
	var causes *watchedCauses
	var plans []plan.Plan
	if topics[topicQueues] {
		if queues, err = a.allQueues(ctx, func(string) bool { return true }); err != nil {
			return nil, err
		}
	}
	if topics[topicCauses] {
		if causes, err = a.watchCauses(ctx, now.UTC(), mostWatched); err != nil {
			return nil, err
		}
	}
	if topics[topicPlans] {
		if plans, err = a.plans.List(ctx); err != nil {
			return nil, err
		}
	}
	return func(who *caller, topic string) map[string]any {
		items := make(map[string]any)
		switch topic {
		case topicQueues:
			for i := range queues {
				if who.sees(queues[i].Queue) {
					items[queues[i].Queue] = &queues[i]
				}
			}
		case topicCauses:
			causes.show(a, who, items)
		case topicPlans:
			for i := range plans {
				if seesPlan(who, &plans[i].Request) == nil {
					items[plans[i].ID] = a.planOf(&plans[i], who)
				}
			}
		}
		return items
	}, nil
}

// listen streams changes as server-sent events.
func (a *app) listen(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, "topics")
	if err != nil {
		return err
	}
	topics := allTopics
	if s := v.Get("topics"); s != "" {
		topics = strings.Split(s, ",")
	}
	for _, t := range topics {
		if !slices.Contains(allTopics, t) {
			return bad(fmt.Sprintf("topic %q", t), "use some of "+strings.Join(allTopics, ",")+", with commas between")
		}
	}
	l, err := a.events.Listen(who.rights(), who, topics...)
	switch {
	case errors.Is(err, events.ErrFull):
		return problem.New(http.StatusServiceUnavailable, "listeners", "There are too many listeners", fmt.Sprintf("there are %d", events.MaxListeners), "ask for the lists every few seconds instead").After(5 * time.Second)
	case err != nil:
		return shuttingDown()
	}
	defer l.Leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s := &eventStream{w: w, ctx: r.Context(), control: http.NewResponseController(w)}
	stop := context.AfterFunc(s.ctx, s.hurry)
	defer stop()
	s.run(l)
	return nil
}

func shuttingDown() *problem.Problem {
	return problem.New(http.StatusServiceUnavailable, "shutting-down", "The daemon shuts down", "", "come back").After(time.Second)
}

// eventStream writes to one listener.
type eventStream struct {
	w       http.ResponseWriter
	ctx     context.Context //nolint:containedctx // the request's
	control *http.ResponseController
}

// hurry lets a write that is under way come to its end.
func (s *eventStream) hurry() { _ = s.control.SetWriteDeadline(time.Now().Add(streamGrace)) } // not every writer has deadlines

func (s *eventStream) write(b []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(eventWrite)) // likewise
	if s.ctx.Err() != nil {
		s.hurry()
	}
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// run writes until the client leaves, its token ends or the daemon does.
func (s *eventStream) run(l *events.Listener) {
	silence := time.NewTimer(heartbeat)
	defer silence.Stop()
	err := s.write([]byte(": welcome\n\n")) // so that the client knows that it is connected
	for err == nil {
		silence.Reset(heartbeat)
		select {
		case <-s.ctx.Done():
			if p := gateway.Ended(s.ctx); p != nil {
				s.end(p)
			}
			return
		case round, open := <-l.Rounds():
			switch {
			case open:
				err = s.write(appendRound(nil, l, round))
			case errors.Is(l.Why(), events.ErrClosed):
				s.end(shuttingDown())
				return
			default:
				return
			}
		case <-silence.C:
			err = s.write([]byte(": heartbeat\n\n"))
		}
	}
}

// end writes why the stream ends.
func (s *eventStream) end(p *problem.Problem) {
	e, err := events.Of(wire.Event{Topic: "end", Item: p})
	if err == nil {
		_ = s.write(e.Append(nil)) // the client may have left
	}
}

func appendRound(b []byte, l *events.Listener, round events.Round) []byte {
	n := 0
	for i := range round.Events {
		if e := &round.Events[i]; l.Wants(e.Topic) {
			n++
		}
	}
	if round.Whole {
		if e, err := events.Of(wire.Event{Topic: "reset", Item: wire.Reset{Events: n}}); err == nil {
			b = e.Append(b)
		}
	}
	for i := range round.Events {
		if e := &round.Events[i]; l.Wants(e.Topic) {
			b = e.Append(b)
		}
	}
	return b
}
