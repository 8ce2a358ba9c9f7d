package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// maxEdit bounds the body of a request that edits: a message's body in base64, and
// its headers.
const maxEdit = redrive.MaxBodySize/3*4 + 4*redrive.MaxHeaderSize

// deadQuery reads the filter of a list of dead letters, which may have more parameters.
func (a *app) deadQuery(r *http.Request, who *caller, more ...string) (q redrive.Query, after string, limit int, err error) {
	v, err := parameters(r, append(more, deadArgs...)...)
	if err != nil {
		return q, "", 0, err
	}
	if limit, err = parseLimit(v); err != nil {
		return q, "", 0, err
	}
	f := wire.FilterFrom(v)
	if err := who.confine(f.Queue); err != nil {
		return q, "", 0, err
	}
	if f.Queue != "" { // a misspelt name is no empty list
		if _, err := a.existing(r, f.Queue); err != nil {
			return q, "", 0, err
		}
	}
	q, err = queryOf(&f, who, a.utcNow(r))
	q.State = redrive.StateDead
	return q, v.Get("after"), limit, err
}

func (a *app) listDead(w http.ResponseWriter, r *http.Request, who *caller) error {
	q, after, limit, err := a.deadQuery(r, who)
	if err != nil {
		return err
	}
	return a.page(w, r, who, q, after, limit)
}

// deadEntry returns a dead letter, or a problem for a message that is not dead.
func (a *app) deadEntry(r *http.Request) (*redrive.Entry, error) {
	e, err := a.entry(r)
	if err != nil {
		return nil, err
	}
	if e.State != redrive.StateDead {
		return nil, problem.New(http.StatusConflict, "state", "The message is not dead", fmt.Sprintf("%s is %s", e.Ref(), e.State),
			fmt.Sprintf("see /v1/queues/%s/messages/%s", e.Queue, e.ID))
	}
	return e, nil
}

func (a *app) showDead(w http.ResponseWriter, r *http.Request, who *caller) error {
	e, err := a.deadEntry(r)
	if err != nil {
		return err
	}
	return a.writeWhole(w, r, e, who)
}

func (a *app) editDead(w http.ResponseWriter, r *http.Request, who *caller) error {
	var edit wire.Edit
	if err := readJSON(w, r, maxEdit, &edit); err != nil {
		return err
	}
	if edit.Body == nil && edit.BodyBase64 == nil && edit.Headers == nil && edit.Kind == nil && edit.Key == nil {
		return bad("nothing is edited", "give body, body_base64, headers, kind or key")
	}
	if edit.Body != nil && edit.BodyBase64 != nil {
		return bad("both body and body_base64", "give one of them")
	}
	std := edit.Std()
	if std.Headers != nil {
		// A delivery to a broker carries it, and a queue with that broker as its source follows it.
		if to, there := std.Headers.Get(headername.ReplyTo); there {
			if err := a.mayReply(who, to); err != nil {
				return err
			}
		}
	}
	e, err := a.deadEntry(r)
	if err != nil {
		return err
	}
	if err := a.mayEdit(r, who, e, &edit, std); err != nil {
		return err
	}
	edits := map[redrive.Ref]driver.EditOf{e.Ref(): {Edit: *std, Sum: driver.Checksum(&e.Message)}}
	err = a.change(w, r, who, e, driver.Change{Action: driver.ActEdit, Edits: edits})
	if errors.Is(err, redrive.ErrConflict) {
		return changedSince(e)
	}
	return err
}

// mayEdit refuses an edit of what the caller did not look at, and a body that is not JSON any more.
func (a *app) mayEdit(r *http.Request, who *caller, e *redrive.Entry, edit *wire.Edit, std *redrive.Edit) error {
	if std.Body != nil && !edit.NotJSON && json.Valid(e.Body) && !json.Valid(std.Body) {
		return problem.New(http.StatusUnprocessableEntity, "not-json", "The new body is not JSON, and the present one is", e.Ref().String(),
			"mend it; or, if that is meant, say not_json (--not-json)")
	}
	if edit.Version == "" {
		return nil
	}
	seen, err := a.whole(r, e, who, false)
	unmasked := wire.Whole(e, true)
	if err != nil || seen.Version == edit.Version || who.may(config.ScopeAdmin) && unmasked.Seen() == edit.Version {
		return err
	}
	return changedSince(e)
}

func changedSince(e *redrive.Entry) error {
	return problem.New(http.StatusConflict, "conflict", "The message was changed meanwhile", e.Ref().String(), "look at it again, and edit what is there now")
}

func (a *app) dropDead(w http.ResponseWriter, r *http.Request, who *caller) error {
	e, err := a.deadEntry(r)
	if err != nil {
		return err
	}
	return a.change(w, r, who, e, driver.Change{Action: driver.ActDrop})
}
