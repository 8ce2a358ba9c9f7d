package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// flip changes the first byte of a stored body.
func flip(t testing.TB, s driver.Store, ref redrive.Ref, original bool) {
	t.Helper()
	store, table := s.(*Store), "message"
	if original {
		table = "original"
	}
	spoilRow(t, store, ref, fmt.Sprintf(`UPDATE %s SET body = CAST(char(unicode(CAST(body AS TEXT)) + 1) || substr(body, 2) AS BLOB) WHERE seq = ?`, table))
}

// spoilRow runs a statement on a message's seq.
func spoilRow(t testing.TB, s *Store, ref redrive.Ref, sql string) {
	t.Helper()
	noErr(t, s.do(t.Context(), 1, func(tx *tx) error {
		seq, err := tx.lookup(s.queueNamed(ref.Queue), ref.ID)
		if err != nil {
			return err
		}
		n, err := tx.write(sql).int(seq).changed()
		if err == nil && n != 1 {
			return fmt.Errorf("%d rows of %s", n, ref)
		}
		return err
	}))
}

// mixed publishes a message for each part that a checksum covers, and one that stays as it is.
func mixed(t *testing.T, s *Store) {
	t.Helper()
	for _, id := range []string{"body", "key", "kind", "headers", "torn", "sound"} {
		publish(t, s, redrive.Message{Queue: "q", ID: id, Kind: "k", Key: "key", Body: []byte("body"), Headers: redrive.Headers{{Name: "a", Value: []byte("1")}}})
	}
	for id, sql := range map[string]string{
		"body": "UPDATE message SET body = x'00' WHERE seq = ?", "key": "UPDATE message SET key = 'kez' WHERE seq = ?",
		"kind": "UPDATE waiting SET kind = 'K' WHERE seq = ?", "headers": "UPDATE message SET headers = x'01610132' WHERE seq = ?",
		"torn": "UPDATE message SET headers = x'016101' WHERE seq = ?",
	} {
		spoilRow(t, s, redrive.Ref{Queue: "q", ID: id}, sql)
	}
}

// Whatever part of a message the disk changed, it is claimed as corrupt, and keeps nothing
// else from being claimed.
func TestWhateverTheDiskChangedIsFound(t *testing.T) {
	s := open(t, t.TempDir())
	mixed(t, s)
	for _, d := range claimAll(t, s, "q") {
		if want := redrive.ReasonCorrupt; (d.Unfit == want) == (d.ID == "sound") {
			t.Errorf("%s is claimed as %q", d.ID, d.Unfit)
		}
		noErr(t, s.Settle(t.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonCorrupt}})...)
	}
	page, err := s.Find(t.Context(), redrive.Query{Queue: "q", Reason: redrive.ReasonCorrupt, Bodies: true})
	noErr(t, err)
	equal(t, len(page.Entries), 6)
	audits, err := s.Verify(t.Context())
	noErr(t, err)
	if p := strings.Join(audits[0].Problems, "; "); audits[0].Corrupt != 5 || strings.Contains(p, "checksum") {
		t.Errorf("verify says %q of %d that are dead as corrupt", p, audits[0].Corrupt)
	}
}

// What was stored without a checksum is not looked at, but for headers that cannot be read.
func TestNoChecksumMeansUnchecked(t *testing.T) {
	s := open(t, t.TempDir())
	mixed(t, s)
	for _, id := range []string{"body", "key", "kind", "headers", "torn", "sound"} {
		spoilRow(t, s, redrive.Ref{Queue: "q", ID: id}, "UPDATE message SET crc = NULL WHERE seq = ?")
	}
	for _, d := range claimAll(t, s, "q") {
		if (d.Unfit != 0) != (d.ID == "torn") {
			t.Errorf("%s is claimed as %q", d.ID, d.Unfit)
		}
	}
}

func TestSalvageBuriesWhatIsCorrupt(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	mixed(t, s)
	publish(t, s, redrive.Message{Queue: "q", ID: "dead", Body: []byte("x")}, redrive.Message{Queue: "q", ID: "edited", Body: []byte("x")},
		redrive.Message{Queue: "q", ID: "placeless", Kind: "k"}, redrive.Message{Queue: "q", ID: "kindless", Kind: "that no other has"})
	for id, c := range map[string]driver.Change{"dead": {Action: driver.ActKill, Reason: redrive.ReasonPermanent, Note: "why"}, "edited": {Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("y")}}} {
		_, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{{Queue: "q", ID: id}}}, c, 1)
		noErr(t, err)
	}
	flip(t, s, redrive.Ref{Queue: "q", ID: "dead"}, false)
	for _, id := range []string{"placeless", "kindless"} {
		spoilRow(t, s, redrive.Ref{Queue: "q", ID: id}, "DELETE FROM waiting WHERE seq = ?")
	}
	noErr(t, s.Close())

	report, err := Check(t.Context(), dir, nil)
	noErr(t, err)
	if p := strings.Join(report.Problems, "; "); !strings.Contains(p, "6 messages do not match their checksum, for instance dead") {
		t.Errorf("check says %q", p)
	}
	to := filepath.Join(t.TempDir(), "new")
	report, err = Salvage(t.Context(), dir, to, nil)
	noErr(t, err)
	equal(t, []any{report.Waiting, report.Dead, len(report.Lost)}, []any{3, 7, 0})
	if p := strings.Join(report.Problems, "; "); !strings.Contains(p, "7 messages do not match their checksum, for instance q/body; they are dead as corrupt") {
		t.Errorf("salvage says %q", p)
	}
	s = open(t, to)
	for id, corrupt := range map[string]bool{"body": true, "key": true, "kind": true, "headers": true, "torn": true, "sound": false, "dead": true, "edited": false, "placeless": false, "kindless": true} {
		e := entry(t, s, redrive.Ref{Queue: "q", ID: id})
		if got := e.Reason == redrive.ReasonCorrupt; got != corrupt {
			t.Errorf("%s is %s for %q", id, e.State, e.Reason)
		}
	}
	equal(t, entry(t, s, redrive.Ref{Queue: "q", ID: "dead"}).History.Latest().Message, "why")
	equal(t, entry(t, s, redrive.Ref{Queue: "q", ID: "placeless"}).Kind, "k")
	found, err := s.Recall(t.Context(), []redrive.Ref{{Queue: "q", ID: "body"}})
	noErr(t, err)
	equal(t, []any{found[0].Outcome, found[0].Reason}, []any{redrive.OutcomeDead, redrive.ReasonCorrupt})
	ds := claimAll(t, s, "q")
	equal(t, len(ds), 3)
	for _, d := range ds {
		equal(t, d.Unfit, 0)
	}
	audits, err := s.Verify(t.Context())
	noErr(t, err)
	equal(t, []any{len(audits[0].Problems), audits[0].Corrupt}, []any{0, int64(7)})
}
