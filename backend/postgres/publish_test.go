package postgres

import (
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
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
				noErr(t, tx.publish(s, msgs[:10]...))
				noErr(t, tx.commit())
				noErr(t, driver.FirstError(s.Publish(t.Context(), msgs[10:])))
				faulttest.Stored(t, s, "a", msgs)
			})
		})
	}
}
