package daemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
)

// callerKey is the context key of who sends a request.
type callerKey struct{}

// callerOfContext returns who sends the request of a context.
func callerOfContext(ctx context.Context) *caller {
	if who, ok := ctx.Value(callerKey{}).(*caller); ok {
		return who
	}
	return &everyone
}

// mayEnter refuses a queue that the caller may not put messages into. It and
// [app.mayReply] are what every way in asks: publish, emits, imports, plans and calls.
func (a *app) mayEnter(who *caller, queue string) error {
	if err := driver.CheckQueue(queue); err != nil {
		return err
	}
	if strings.HasPrefix(queue, "_") {
		return problem.New(http.StatusForbidden, "system-queue", "The queue belongs to the system", queue, "choose a name that does not begin with an underscore")
	}
	if err := who.confine(queue); err != nil {
		return err
	}
	return a.allowQueue(queue)
}

// mayReply lets the result of a message go into queues that the caller could publish
// into itself. A session asks for its results where it publishes, and nobody in its name.
func (a *app) mayReply(who *caller, replyTo string) error {
	switch {
	case replyTo == "":
		return nil
	case strings.HasPrefix(replyTo, driver.SessionReply):
		return problem.New(http.StatusForbidden, "system-queue", "The result may not go to a session", fmt.Sprintf("reply_to %.80q", replyTo),
			"a session gets the results of what it publishes; a worker may pass on the reply_to of the message that it claimed")
	}
	return a.mayEnter(who, replyTo)
}
