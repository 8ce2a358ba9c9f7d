package redistest

import (
	"context"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// A child says on its output what it is about to do and what was acknowledged, a line each;
// [Said] hears it.

// PublishAloud publishes messages.
func PublishAloud(ctx context.Context, s redrive.Sink, msgs []redrive.Message) error {
	fmt.Println("publishing", len(msgs))
	errs := s.Publish(ctx, msgs)
	for i := range msgs {
		if errs == nil || errs[i] == nil {
			fmt.Println("accepted", msgs[i].ID)
		}
	}
	return driver.FirstError(errs)
}

// Outcomes makes settlements of deliveries, all with one outcome.
func Outcomes(o redrive.Outcome, ds ...redrive.Delivery) []driver.Settlement {
	list := make([]driver.Settlement, len(ds))
	for i := range ds {
		list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: o}
		switch o {
		case redrive.OutcomeDead:
			list[i].Reason, list[i].Failure = redrive.ReasonPermanent, &redrive.Failure{Message: "x", Signature: "s"}
		case redrive.OutcomeRetry:
			list[i].Failure = &redrive.Failure{Message: "x", Signature: "s"}
		case redrive.OutcomeDrop:
			list[i].Reason = redrive.ReasonManual
		}
	}
	return list
}

// SettleAloud settles deliveries.
func SettleAloud(ctx context.Context, s driver.Source, list []driver.Settlement) error {
	emits := 0
	say := func(verb string, errs []error) {
		for i := range list {
			if o := list[i].Outcome; (o == redrive.OutcomeDone || o == redrive.OutcomeDrop) && (errs == nil || errs[i] == nil) {
				fmt.Println(verb, list[i].Receipt.ID)
			}
		}
	}
	for i := range list {
		emits += len(list[i].Emit)
	}
	say("ending", nil)
	fmt.Println("publishing", emits)
	errs := s.Settle(ctx, list)
	say("ended", errs)
	for i := range list {
		for j := range list[i].Emit {
			if errs == nil || errs[i] == nil {
				fmt.Println("accepted", list[i].Emit[j].ID)
			}
		}
	}
	return driver.FirstError(errs)
}
