package plan_test

import (
	"context"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/plan"
)

// A plan redrives at a pace, each message at most once, and survives restarts.
func ExamplePlans() {
	store := memory.New()
	defer store.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	plans := plan.New(store, plan.Options{})
	request := plan.Request{
		Action: driver.ActRedrive,
		Query:  redrive.Query{Queue: "mail", Reason: redrive.ReasonExhausted},
		Rate:   50,
	}
	dry, err := plans.DryRun(ctx, request)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println("it would redrive", dry.Total)
	plan, err := plans.Create(ctx, request) // carried out by plans.Run, in any process
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(plan.State, plan.Request.Rate)
	// Output:
	// it would redrive 0
	// running 50
}
