package sqlite

import (
	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// settleDead settles the claim of a dead letter.
func (t *tx) settleDead(l *lease, st *driver.Settlement) error {
	switch st.Outcome {
	case redrive.OutcomeDone, redrive.OutcomeDrop:
		c := countDone
		if st.Outcome == redrive.OutcomeDrop {
			c = countDropped
		}
		d, m, err := t.deadRow(l.queue, l.seq)
		if err != nil {
			return err
		}
		t.count(l.queue, c, 1)
		if err := t.exhume(l.queue, &d, &m, st.Outcome, st.Reason); err != nil {
			return err
		}
	case redrive.OutcomeRetry, redrive.OutcomeRelease, redrive.OutcomeDead:
		if err := t.keepDead(l, st); err != nil {
			return err
		}
	case redrive.OutcomeRepeat:
		d, m, err := t.deadRow(l.queue, l.seq)
		if err != nil {
			return err
		}
		d.token = int64(l.token) //nolint:gosec // epochs are far below 2^31
		if _, err := t.redrive(l.queue, &d, &m, &driver.Change{Action: driver.ActRedrive, Edit: st.Edit}, later(t.now, st.After)); err != nil {
			return err
		}
	}
	t.endLease(l, false)
	return nil
}

// keepDead leaves a claimed dead letter where it is, claimable again when due.
func (t *tx) keepDead(l *lease, st *driver.Settlement) error {
	d, m, err := t.deadRow(l.queue, l.seq)
	if err != nil {
		return err
	}
	due := t.now
	if st.Outcome == redrive.OutcomeDead {
		if err := t.editDead(l.queue, &d, &m, st.Edit); err != nil {
			return err
		}
	} else {
		due = later(t.now, st.After)
	}
	if st.Outcome != redrive.OutcomeRelease {
		d.attempts++
		if err := t.recordFailure(&d.row, st.Failure, false); err != nil {
			return err
		}
		if st.Failure != nil { // the newest failure is the cause, though nothing died anew
			t.countDead(l.queue, &d, -1, bucket{})
			d.signature = st.Failure.Signature
			t.countDead(l.queue, &d, 1, bucket{})
		}
	}
	before := d.text
	if st.Failure != nil && st.Outcome != redrive.OutcomeRelease {
		if d.text, err = t.textOf(l.queue, &d.row); err != nil {
			return err
		}
	}
	t.bump(l.queue)
	err = t.write(`UPDATE dead SET due = ?, attempts = ?, flags = ?, signature = ?, text = ? WHERE seq = ?`).
		int(due).int(d.attempts).int(d.flags).text(d.signature).textRef(d.text).int(l.seq).run()
	if err != nil || d.text == before {
		return err
	}
	return t.dropText(l.queue, before)
}
