package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/problem"
)

// slowSink commits when the test says so.
type slowSink struct {
	began, commit chan struct{}
	ids           []string
	cut           error // of the context, when it was committed
}

func (s *slowSink) Publish(ctx context.Context, msgs []redrive.Message) []error {
	s.began <- struct{}{}
	<-s.commit
	s.cut = ctx.Err()
	for i := range msgs {
		s.ids = append(s.ids, msgs[i].ID)
	}
	return nil
}

// TestWhatIsBeingCommittedIsAnswered: when the token is revoked, or the gateway drains, of
// a stream the batch that is being committed is accepted and answered, and the last line
// says why nothing more is read. One message is answered like any other.
func TestWhatIsBeingCommittedIsAnswered(t *testing.T) {
	for _, c := range []struct{ body, why string }{
		{"{\"id\":\"a\"}\n", "token-revoked"},
		{"{\"id\":\"a\"}\n", "shutting-down"},
		{"a", "token-revoked"},
	} {
		t.Run(c.why, func(t *testing.T) {
			life, end := context.WithCancelCause(t.Context())
			s := &slowSink{began: make(chan struct{}, 9), commit: make(chan struct{})}
			over := make(chan context.Context, 1)
			g := gateway.New(s, gateway.Options{})
			mux := http.NewServeMux()
			mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
				r, release := gateway.Within(life, r)
				defer release()
				over <- r.Context()
				g.ServeHTTP(w, r)
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			in, out := io.Pipe()
			defer out.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/queues/sms/messages", in)
			if err != nil {
				t.Fatal(err)
			}
			stream := strings.HasPrefix(c.body, "{")
			r.Header.Set("Redrive-Id", "a")
			if stream {
				r.Header.Set("Content-Type", "application/x-ndjson")
			}
			go func() {
				_, _ = io.WriteString(out, c.body)
				if !stream {
					out.Close()
				}
				<-s.began
				if c.why == "shutting-down" {
					g.Drain()
				} else {
					end(problem.New(http.StatusUnauthorized, c.why, "The token was revoked", "", ""))
				}
				<-(<-over).Done()
				close(s.commit)
			}()
			resp, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if !stream {
				if resp.StatusCode != http.StatusAccepted {
					t.Errorf("what was being committed is answered with %s", resp.Status)
				}
			} else if got := results(t, resp.Body); len(got) != 2 || got[0].Status != "accepted" || got[1].Line != 2 || got[1].Error.Name() != c.why {
				t.Errorf("%s: %+v", c.why, got)
			}
			if s.cut != nil || len(s.ids) != 1 {
				t.Errorf("%s: committed %q, the context of it: %v", c.why, s.ids, s.cut)
			}
		})
	}
}
