package guard

// Held is what calls have taken and not given back: reservations of the backlog, calls
// in flight, and deliveries that are taken for begun.
func (g *Guard[Req, Resp]) Held() (reserved, inUse, begun int) {
	for _, p := range g.providers {
		p.mu.Lock()
		reserved += p.m.Reserved()
		inUse += p.m.Stats(g.now()).InUse
		p.unlock()
	}
	g.claims.mu.Lock()
	defer g.claims.mu.Unlock()
	return reserved, inUse, len(g.claims.begun)
}

// SecondTries is how many second tries the budget has now.
func (g *Guard[Req, Resp]) SecondTries() float64 {
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	return g.budget.tokens
}
