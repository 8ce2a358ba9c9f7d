package ui

// The pages that are kept up to date, by their fragments. Forms that people fill in are in none.

func (p nowPage) order() []string { return nil }

func (p nowPage) fragments() (all []fragment) {
	for _, part := range []string{"head", "waits", "growing", "held", "running", "queues"} {
		all = append(all, fragment{"live-" + part, "now-" + part, p})
	}
	return all
}

func (p causesPage) fragments() []fragment {
	all := []fragment{{"live-head", "causes-head", p}}
	for i := range p.Rows {
		all = append(all, fragment{p.Rows[i].RowID, "cause-row", p.Rows[i]})
	}
	return all
}

func (p causesPage) order() []string {
	return ordered(p.Rows, func(r *causeRow) string { return r.RowID })
}

func (p queuesPage) fragments() []fragment {
	all := []fragment{{"live-head", "queues-head", p}}
	for i := range p.Rows {
		all = append(all, fragment{p.Rows[i].RowID, "queue-row", p.Rows[i]})
	}
	return all
}

func (p queuesPage) order() []string {
	return ordered(p.Rows, func(r *queueRow) string { return r.RowID })
}

func (p plansPage) fragments() []fragment {
	all := []fragment{{"live-head", "plans-head", p}}
	for i := range p.Rows {
		all = append(all, fragment{p.Rows[i].RowID, "plan-row", p.Rows[i]})
	}
	return all
}

func (p plansPage) order() []string {
	return ordered(p.Rows, func(r *planRow) string { return r.RowID })
}

func (p queuePage) order() []string { return nil }

func (p queuePage) fragments() (all []fragment) {
	for _, part := range []string{"head", "numbers", "causes", "flow", "backlog"} {
		all = append(all, fragment{"live-" + part, "queue-" + part, p})
	}
	return all
}

func (p planPage) order() []string { return nil }

func (p planPage) fragments() (all []fragment) {
	for _, part := range []string{"head", "progress", "errors", "results"} {
		all = append(all, fragment{"live-" + part, "plan-" + part, p})
	}
	return all
}

// ordered returns the ids of rows in their order, which is there also where there are none.
func ordered[R any](rows []R, id func(r *R) string) []string {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = id(&rows[i])
	}
	return ids
}
