// Package guard keeps callers of a third party up while that party limits them or
// breaks. A [Guard] wraps the call to one or several providers. While they are well a
// call goes straight through. While they are sick the request becomes a message in a
// queue, and the caller has a [Ticket] for its later result. The queue is worked off
// below the live traffic, and traffic returns to normal by itself.
//
// Each provider has a state of its own, see [State]; a [Guard] learns from every call
// how its provider is, also from calls that have not ended yet.
//
//	g, err := guard.New(guard.Config[SMS, Receipt]{
//		Name:      "sms",
//		Providers: []guard.Provider[SMS, Receipt]{{Name: "first", Call: send}},
//		Store:     store,
//	})
//	go g.Run(ctx)                                              // state, shared limits
//	go engine.Run(ctx, store, "sms", g, g.QueueOptions()) // the backlog
//	res, err := g.Do(ctx, SMS{To: "...", Text: "..."})
//	if res.Deferred() { ... res.Ticket.ID ... }
package guard
