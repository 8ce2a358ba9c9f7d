package backendtest

import (
	"errors"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// checksumGoesAlong puts entries with the checksums that another store kept beside them: what was
// flipped on the way is found.
func checksumGoesAlong(c *C) {
	body := []byte("edited")
	c.publish(whole("kept"))
	c.kill(1, redrive.ReasonPermanent)
	c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: body}}, "kept")[0].Err, "edit")
	found := c.find(redrive.Query{Queue: c.q, Bodies: true})
	if len(found) != 1 {
		c.Fatalf("found %d", len(found))
	}
	first, edited := whole("kept"), whole("kept")
	edited.Body = body
	if e := &found[0]; e.Checksum == nil || *e.Checksum != driver.Checksum(&edited) || e.OriginalChecksum == nil || *e.OriginalChecksum != driver.Checksum(&first) {
		c.Errorf("the checksums are %v and %v", e.Checksum, e.OriginalChecksum)
	}
	for _, e := range c.find(redrive.Query{Queue: c.q}) {
		if e.Checksum != nil || e.OriginalChecksum != nil {
			c.Errorf("there are checksums without bodies")
		}
	}
	wrong := driver.Checksum(&edited) ^ 1
	put := func(id string, state redrive.State, sum, original *uint32) redrive.Entry {
		e := redrive.Entry{Message: whole(id), State: state, Checksum: sum, OriginalChecksum: original}
		e.Queue = c.q
		if state == redrive.StateDead {
			e.Reason = redrive.ReasonPermanent
		}
		if original != nil {
			was := whole(id)
			was.Body = body
			e.Original = &was
		}
		return e
	}
	m := whole("right")
	right := driver.Checksum(&m)
	errs, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{
		put("right", redrive.StateWaiting, &right, nil), put("flipped", redrive.StateWaiting, &wrong, nil), put("none", redrive.StateWaiting, nil, nil),
	}})
	c.noError(errors.Join(err, driver.FirstError(errs)), "put")
	if said := c.unsound(); !strings.Contains(said, "flipped") {
		c.Errorf("verify says %q, want the message named whose checksum does not fit", said)
	}
	for _, d := range c.get(3, c.ask(3)) {
		if (d.Unfit == redrive.ReasonCorrupt) != (d.ID == "flipped") {
			c.Errorf("%s is claimed as %q", d.ID, d.Unfit)
		}
		c.done(d)
	}
	_, err = c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{put("original", redrive.StateDead, nil, &wrong)}})
	c.noError(err, "put")
	if said := c.unsound(); !strings.Contains(said, "original") {
		c.Errorf("verify says %q, want the edited message named whose original does not fit", said)
	}
	c.dropAll()
}
