package driver

import (
	"errors"
	"time"

	"github.com/redrive/redrive"
)

// Classification is what an error of a handler means for its message.
type Classification struct {
	// Outcome is retry, release, dead or repeat.
	Outcome redrive.Outcome
	Reason  redrive.Reason // of a dead letter
	After   time.Duration  // when to try again; of a retry the floor of the delay
	// Request says that nothing failed: the handler asked to run again.
	Request bool
}

// verbOf returns what a verb in the error's chain asks for.
func verbOf(err error) (c Classification, ok bool) {
	var v interface {
		Verb() (redrive.Outcome, redrive.Reason, time.Duration, bool)
	}
	if ok = errors.As(err, &v); ok {
		c.Outcome, c.Reason, c.After, c.Request = v.Verb()
	}
	return c, ok
}

// Classify asks the handler's own verbs first ([redrive.Permanent] and the like), then c
// if it is not nil, then the defaults; see [redrive.Classifier].
func Classify(c redrive.Classifier, err error) Classification {
	own, said := verbOf(err)
	if said && own.Outcome != redrive.OutcomeRetry {
		return own
	}
	if c != nil {
		if got, ok := verbOf(c.Classify(err)); ok {
			got.After = max(got.After, own.After)
			return got
		}
	}
	if said {
		return own
	}
	return byDefault(err)
}

func byDefault(err error) Classification {
	var undecodable *redrive.DecodeError
	if errors.As(err, &undecodable) {
		return Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonUndecodable}
	}
	var status redrive.StatusError
	if errors.As(err, &status) {
		switch status.HTTPStatus() {
		case 400, 404, 422:
			return Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}
		case 413:
			return Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonOversize}
		}
	}
	return Classification{Outcome: redrive.OutcomeRetry}
}
