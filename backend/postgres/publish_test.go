package postgres

import (
	"bytes"
	"slices"
	"testing"

	"github.com/redrive/redrive"
)

// Messages of one call that are due at once share a statement, whichever of them have
// kinds and headers.
func TestBatchesAreStoredAsTheyAre(t *testing.T) {
	bytesOf := func(i int) []byte { return []byte{byte(i), 0, 0xff, '\'', '\\', '"', '{'} }
	for name, fill := range map[string]func(m *redrive.Message, i int){
		"bodies only": func(*redrive.Message, int) {},
		"some kinds":  func(m *redrive.Message, i int) { m.Kind = []string{"", `k "ü', \`}[i%2] },
		"some headers": func(m *redrive.Message, i int) {
			m.Headers = [...]redrive.Headers{nil, {{Name: "h", Value: bytesOf(i)}}}[i%2]
		},
		"no body": func(m *redrive.Message, _ int) { m.Body = nil },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, s *Store, begin func() transaction) {
				msgs := make([]redrive.Message, 20)
				for i := range msgs {
					msgs[i] = redrive.Message{Queue: "a", Body: bytesOf(i)}
					fill(&msgs[i], i)
				}
				tx := begin()
				noErr(t, redrive.FirstError(s.PublishTx(t.Context(), tx.tx, msgs[:10]...)))
				noErr(t, tx.commit())
				noErr(t, redrive.FirstError(s.Publish(t.Context(), msgs[10:])))
				checkBatch(t, s, msgs)
			})
		})
	}
}

// checkBatch fails unless all messages wait as they were published, in their order.
func checkBatch(t *testing.T, s *Store, msgs []redrive.Message) {
	t.Helper()
	got := claim(t, s, "a")
	if len(got) != len(msgs) {
		t.Fatalf("%d messages, want %d", len(got), len(msgs))
	}
	for i := range got {
		m, want := &got[i].Message, &msgs[i]
		same := func(a, b redrive.Header) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }
		if m.ID != want.ID || m.Kind != want.Kind || !bytes.Equal(m.Body, want.Body) || !slices.EqualFunc(m.Headers, want.Headers, same) {
			t.Errorf("message %d: %+v, want %+v", i, m, want)
		}
	}
	audits, err := s.Verify(t.Context())
	noErr(t, err)
	for i := range audits {
		if a := &audits[i]; a.Imbalance() != 0 || len(a.Problems) > 0 {
			t.Errorf("the books of %s: %+v", a.Queue, *a)
		}
	}
	if len(audits) != 1 || audits[0].Waiting != int64(len(msgs)) {
		t.Errorf("scanned %+v", audits)
	}
}
