package watch

// board is a dashboard: deploy/grafana/NAME.json is written from it.
type board struct {
	name, title, says string
	by                string // the label of its second variable: queue or guard; "": none
	values            string // the series that has the variable's values
	rows              []row
}

// row is a line of panels with a heading.
type row struct {
	title  string
	height int
	panels []panel
}

// panel is a diagram, a number or a table. In queries <job>, <queue> and <guard> stand for the
// variables' matchers, and [w] for the window of a rate.
type panel struct {
	kind, title, says, unit string
	width                   int // of 24
	bad                     string
	queries                 []query
}

type query struct{ expr, legend string }

// Kinds of panels.
const (
	lines  = "timeseries"
	number = "stat"
	rows   = "table"
	note   = "text"
)

// Units, as Grafana has them.
const (
	count   = "short"
	seconds = "s"
	share   = "percentunit"
	size    = "bytes"
	each    = "cps" // a second
)

func q(expr, legend string) []query { return []query{{expr, legend}} }

// quantiles are three of a histogram. A window without an observation has none.
func quantiles(of, where string) []query {
	expr := func(p string) string {
		return "histogram_quantile(" + p + ", sum by (le) (rate(" + of + "_bucket{" + where + "}[w]))) >= 0"
	}
	return []query{{expr("0.5"), "half within"}, {expr("0.9"), "90 % within"}, {expr("0.99"), "99 % within"}}
}

func mean(of, where, by string) string {
	return "sum" + by + " (rate(" + of + "_sum{" + where + "}[w])) / (sum" + by + " (rate(" + of + "_count{" + where + "}[w])) > 0)"
}

var boards = []board{overview, oneQueue, deadLetters, providers, brokers}

var overview = board{
	name: "overview", title: "Redrive / Overview", says: "Whether it is well, what goes through, and what the daemons and their stores do.",
	rows: []row{
		{"Is it well?", 4, []panel{
			{number, "Daemons", "Daemons whose store answers. Fewer than usual: RedriveDown, RedriveStoreAway.", count, 4, "0", q(`sum(redrive_store_up{<job>})`, "")},
			{number, "Alerts", "Alerts of deploy/prometheus/rules.yaml that fire.", count, 4, "1", q(`count(ALERTS{alertname=~"Redrive.+", alertstate="firing", <job>}) or vector(0)`, "")},
			{number, "Waiting", "Messages that wait. Daemons of one store show the same number: it is taken once a job.", count, 4, "", q(`sum(max by (job, queue) (redrive_queue_messages{<job>, state="waiting"}))`, "")},
			{number, "Oldest due", "How long the oldest due message has been due.", seconds, 4, "900", q(`max(redrive_oldest_message_age_seconds{<job>, state="due"})`, "")},
			{number, "Dead letters", "Messages that wait for people.", count, 4, "", q(`sum(max by (job, queue) (redrive_queue_messages{<job>, state="dead"}))`, "")},
			{number, "Ledger off by", "Entered, less what left, waits or is dead. It must be 0; else: redrive verify --scan.", count, 4, "1", q(`max(redrive_ledger_imbalance_messages{<job>})`, "")},
		}},
		{"What goes through", 8, []panel{
			{lines, "Accepted", "Messages that were accepted durably, by the way they came in.", each, 8, "", q(`sum by (ingress) (rate(redrive_accepted_total{<job>}[w]))`, "{{ingress}}")},
			{lines, "Attempts", "Attempts that ended, by what became of the message.", each, 8, "", q(`sum by (outcome) (rate(redrive_attempts_total{<job>}[w]))`, "{{outcome}}")},
			{lines, "Refused", "Publishes that were refused: backlogged, overloaded, quota-exceeded, shutting-down.", each, 8, "", q(`sum by (reason) (rate(redrive_shed_total{<job>}[w])) or vector(0)`, "{{reason}}")},
			{lines, "From accepted to done", "How long messages took until they were done, retries included; from when they were wanted, if that was later.", seconds, 8, "", quantiles("redrive_end_to_end_seconds", "<job>")},
			{lines, "One attempt", "How long attempts took.", seconds, 8, "", quantiles("redrive_attempt_duration_seconds", "<job>")},
			{lines, "Attempts a message", "Average number of attempts of messages that were done, dead or dropped. 1 is the least.", count, 8, "", q(mean("redrive_message_attempts", "<job>", ""), "attempts")},
		}},
		{"Queues", 8, []panel{
			{lines, "Waiting", "The ten queues with the most that waits.", count, 8, "", q(`topk(10, max by (job, queue) (redrive_queue_messages{<job>, state="waiting"}))`, "{{queue}}")},
			{lines, "Dead letters", "The ten queues with the most dead letters.", count, 8, "", q(`topk(10, max by (job, queue) (redrive_queue_messages{<job>, state="dead"}))`, "{{queue}}")},
			{lines, "Oldest due", "How long the oldest due message of a queue has been due.", seconds, 8, "", q(`topk(10, max by (job, queue) (redrive_oldest_message_age_seconds{<job>, state="due"}))`, "{{queue}}")},
			{lines, "Breakers", "0 closed, 1 probing, 2 open: the target fails as a whole.", count, 8, "", q(`max by (job, queue) (redrive_breaker_state{<job>})`, "{{queue}}")},
			{lines, "Pauses", "Pauses in force, by people or asked for by the target.", count, 8, "", q(`max by (job, queue) (redrive_queue_pauses{<job>})`, "{{queue}}")},
			{lines, "Leases lost", "Leases that were lost while a message was handled or settled, also those of workers that died: such messages are delivered again.", each, 8, "", q(`sum by (job, queue) (rate(redrive_leases_lost_total{<job>}[w]))`, "{{queue}}")},
		}},
		{"The store", 8, []panel{
			{lines, "Disk left", "Room that the disk of an embedded store has left. Below a fifth: RedriveDiskNearlyFull.", share, 8, "", q(`redrive_store_disk_free_bytes{<job>} / redrive_store_disk_size_bytes{<job>}`, "{{instance}}")},
			{lines, "Settling", "Time to make a group of settlements durable.", seconds, 8, "", quantiles("redrive_settle_group_duration_seconds", "<job>")},
			{lines, "Settlements a group", "Average number of settlements that were written in one group.", count, 8, "", q(mean("redrive_settle_group_messages", "<job>", ""), "settlements")},
			{lines, "Statements", "Average time of a statement or transaction, of a store in a database server.", seconds, 8, "", q(mean("redrive_store_statement_duration_seconds", "<job>", " by (statement)"), "{{statement}}")},
			{lines, "Failed statements", "Statements that failed because of the server or the way to it.", each, 8, "", q(`sum by (statement) (rate(redrive_store_statement_errors_total{<job>}[w]))`, "{{statement}}")},
			{lines, "Connections", "The pool of a store in a database server, and what it may open.", count, 8, "", []query{{`sum by (state) (redrive_store_connections{<job>})`, "{{state}}"}, {`sum(redrive_store_connections_max{<job>})`, "at most"}}},
			{lines, "Waiting for a connection", "How long, of each second, calls waited for a connection together.", share, 8, "", q(`sum by (instance) (rate(redrive_store_connection_wait_seconds_total{<job>}[w]))`, "{{instance}}")},
			{lines, "In the spool", "Messages that were accepted while the store was away and wait for it.", count, 8, "", q(`redrive_spool_messages{<job>}`, "{{instance}}")},
			{lines, "Memory", "Resident memory of the process. Bodies in flight take at most 256 MiB of it.", size, 8, "", q(`process_resident_memory_bytes{<job>}`, "{{instance}}")},
		}},
		{"The daemons", 8, []panel{
			{lines, "Processors", "Processors in use.", count, 6, "", q(`rate(process_cpu_seconds_total{<job>}[w])`, "{{instance}}")},
			{lines, "Files", "Share of the files and connections that the process may open.", share, 6, "", q(`process_open_fds{<job>} / process_max_fds{<job>}`, "{{instance}}")},
			{lines, "Own faults", "Goroutines of the program that failed and were begun anew within the window. Not 0: a fault of the program.", count, 6, "", q(`increase(redrive_goroutine_restarts_total{<job>}[w])`, "{{instance}}")},
			{lines, "WebSocket", "Connections of sessions that are open.", count, 6, "", q(`redrive_websocket_connections{<job>}`, "{{instance}}")},
		}},
	},
}

var oneQueue = board{
	name: "queue", title: "Redrive / One queue", says: "Everything about one queue. Queues that the configuration does not name are together as other.",
	by: "queue", values: "redrive_queue_messages",
	rows: []row{
		{"Now", 4, []panel{
			{number, "Waiting", "Messages that wait to be claimed.", count, 4, "", q(`sum(max by (job, queue) (redrive_queue_messages{<queue>, state="waiting"}))`, "")},
			{number, "Oldest due", "How long the oldest due message has been due.", seconds, 4, "900", q(`max(redrive_oldest_message_age_seconds{<queue>, state="due"})`, "")},
			{number, "Dead letters", "Messages that wait for people.", count, 4, "", q(`sum(max by (job, queue) (redrive_queue_messages{<queue>, state="dead"}))`, "")},
			{number, "Breaker", "0 closed, 1 probing, 2 open: the target fails as a whole.", count, 4, "1", q(`max(redrive_breaker_state{<queue>})`, "")},
			{number, "Pauses", "Pauses in force, by people or asked for by the target.", count, 4, "1", q(`max(redrive_queue_pauses{<queue>})`, "")},
			{number, "All refused", "1 while every delivery of the last minute or longer was answered 400, 413, 415 or 422: a wrong deploy?", count, 4, "1", q(`max(redrive_queue_all_refused{<queue>})`, "")},
		}},
		{"In and out", 8, []panel{
			{lines, "The ledger", "What entered the queue and what left it. Daemons of one store count the same: it is taken once.", each, 12, "", q(`sum by (entry) (max by (job, queue, entry) (rate(redrive_ledger_messages_total{<queue>}[w])))`, "{{entry}}")},
			{lines, "Attempts", "Attempts that ended, by what became of the message.", each, 12, "", q(`sum by (outcome) (rate(redrive_attempts_total{<queue>}[w]))`, "{{outcome}}")},
			{lines, "Messages", "By state; blocked are behind the first of their key.", count, 8, "", q(`sum by (state) (max by (job, queue, state) (redrive_queue_messages{<queue>}))`, "{{state}}")},
			{lines, "Lanes", "What waits, by lane: fresh, retry, redrive; and what of it is due (counted up to 10,000).", count, 8, "", []query{{`sum by (lane) (max by (job, queue, lane) (redrive_queue_lane_messages{<queue>}))`, "{{lane}}"}, {`sum(max by (job, queue) (redrive_queue_due_messages{<queue>}))`, "due"}}},
			{lines, "Bytes", "Size of what waits.", size, 8, "", q(`sum(max by (job, queue) (redrive_queue_bytes{<queue>}))`, "waiting")},
			{lines, "Oldest due, by lane", "How long the oldest due message of a lane has been due.", seconds, 12, "", q(`max by (lane) (redrive_oldest_message_age_seconds{<queue>, state="due"})`, "{{lane}}")},
			{lines, "Oldest suspect, oldest dead letter", "How long the oldest suspect has been due, and the oldest dead letter dead.", seconds, 12, "", q(`max by (state) (redrive_oldest_message_age_seconds{<queue>, state!="due"})`, "{{state}}")},
		}},
		{"How well it works", 8, []panel{
			{lines, "From accepted to done", "How long messages took until they were done, retries included.", seconds, 8, "", quantiles("redrive_end_to_end_seconds", "<queue>")},
			{lines, "One attempt", "How long attempts took.", seconds, 8, "", quantiles("redrive_attempt_duration_seconds", "<queue>")},
			{lines, "Attempts a message", "Average number of attempts of messages that were done, dead or dropped.", count, 8, "", q(mean("redrive_message_attempts", "<queue>", ""), "attempts")},
			{lines, "At the first attempt", "Share of the messages that took one attempt, of those that were done, dead or dropped.", share, 8, "", q(`sum(rate(redrive_message_attempts_bucket{<queue>, le="1"}[w])) / (sum(rate(redrive_message_attempts_count{<queue>}[w])) > 0)`, "one attempt")},
			{lines, "Failed attempts", "Share of the attempts after which the message was not done.", share, 8, "", q(`sum(rate(redrive_attempts_total{<queue>, outcome=~"retry|dead"}[w])) / (sum(rate(redrive_attempts_total{<queue>}[w])) > 0)`, "failed")},
			{lines, "Handlers", "Those that may run at once, that run, and that ignore their context.", count, 8, "", []query{{`sum(redrive_queue_slots{<queue>})`, "at most"}, {`sum(redrive_queue_busy_slots{<queue>})`, "running"}, {`sum(redrive_queue_stuck_slots{<queue>})`, "stuck"}}},
			{lines, "Breaker and pauses", "How often a breaker opened and a pause began within the window.", count, 8, "", []query{{`sum(increase(redrive_breaker_opened_total{<queue>}[w]))`, "breaker opened"}, {`sum(increase(redrive_pauses_total{<queue>}[w]))`, "paused"}}},
			{lines, "Leases lost, nobody's kinds", "Leases that were lost, and attempts that found no handler for the message's kind.", each, 8, "", []query{{`sum(rate(redrive_leases_lost_total{<queue>}[w]))`, "leases lost"}, {`sum(rate(redrive_unhandled_attempts_total{<queue>}[w]))`, "no handler"}}},
			{lines, "Deaths", "Messages that became dead letters, by reason.", each, 8, "", q(`sum by (reason) (rate(redrive_dead_lettered_total{<queue>}[w]))`, "{{reason}}")},
		}},
	},
}

var deadLetters = board{
	name: "dead-letters", title: "Redrive / Dead letters by cause", says: "How many died of which reason, how many came back, and how they ended. A single cause is in the dashboard of Redrive itself.",
	by: "queue", values: "redrive_dead_letters",
	rows: []row{
		{"Now", 4, []panel{
			{number, "Dead letters", "Messages that wait for people.", count, 5, "", q(`sum(max by (job, queue, reason) (redrive_dead_letters{<queue>}))`, "")},
			{number, "Died in an hour", "Messages that became dead letters within the last hour.", count, 5, "", q(`sum(increase(redrive_dead_lettered_total{<queue>}[1h]))`, "")},
			{number, "The oldest", "How long the oldest dead letter has been dead.", seconds, 5, "", q(`max(redrive_oldest_message_age_seconds{<queue>, state="dead"})`, "")},
			{note, "The causes themselves", "Why there is no series for each.", "", 9, "", q("A cause (reason and failure signature) is no label: anybody could make as many as they like.\n\n`redrive dead causes` lists them, `redrive dead triage SIGNATURE` says what each looks like; so does `/ui/causes`.", "")},
		}},
		{"By reason", 8, []panel{
			{lines, "Dead letters by reason", "permanent: refused for good; exhausted: all attempts used up; undecodable, oversize, expired, unroutable, crashed …: docs/guarantees.md.", count, 12, "", q(`sum by (reason) (max by (job, queue, reason) (redrive_dead_letters{<queue>})) > 0`, "{{reason}}")},
			{lines, "Deaths by reason", "Messages that became dead letters.", each, 12, "", q(`sum by (reason) (rate(redrive_dead_lettered_total{<queue>}[w])) > 0`, "{{reason}}")},
			{lines, "Deaths by queue", "Messages that became dead letters.", each, 12, "", q(`sum by (queue) (rate(redrive_dead_lettered_total{<queue>}[w])) > 0`, "{{queue}}")},
			{lines, "Share of messages that die", "Of those that ended, done or dead.", share, 12, "", q(`sum by (queue) (rate(redrive_attempts_total{<queue>, outcome="dead"}[w])) / (sum by (queue) (rate(redrive_attempts_total{<queue>, outcome=~"done|dead"}[w])) > 0)`, "{{queue}}")},
		}},
		{"What became of them", 8, []panel{
			{lines, "Redriven", "Redriven messages that ended, by how. dead: the cause was not mended.", each, 8, "", q(`sum by (outcome) (rate(redrive_redriven_total{<queue>}[w]))`, "{{outcome}}")},
			{lines, "Redriven and delivered", "Share of the redriven messages that were done.", share, 8, "", q(`sum(rate(redrive_redriven_total{<queue>, outcome="done"}[w])) / (sum(rate(redrive_redriven_total{<queue>}[w])) > 0)`, "delivered")},
			{lines, "Archived, dropped, moved, imported", "What left the queue otherwise, and dead letters that were imported.", each, 8, "", q(`sum by (entry) (max by (job, queue, entry) (rate(redrive_ledger_messages_total{<queue>, entry=~"archived|dropped|moved_out|imported"}[w])))`, "{{entry}}")},
			{rows, "Dead letters by queue and reason", "Where to look first: redrive dead causes --queue QUEUE.", count, 24, "", q(`sort_desc(max by (job, queue, reason) (redrive_dead_letters{<queue>}) > 0)`, "")},
		}},
	},
}

var providers = board{
	name: "guard", title: "Redrive / Provider guard", says: "How providers behind a guard are, what they are asked, and what waits for them.",
	by: "guard", values: "redrive_guard_state",
	rows: []row{
		{"States", 8, []panel{
			{lines, "State", "0 healthy, 1 limited, 2 recovering, 3 down, 4 isolated by a person.", count, 8, "", q(`max by (guard, provider) (redrive_guard_state{<guard>})`, "{{guard}} {{provider}}")},
			{lines, "Share of live calls", "Share of the live calls that goes through to a provider.", share, 8, "", q(`avg by (guard, provider) (redrive_guard_share{<guard>})`, "{{guard}} {{provider}}")},
			{lines, "Changes of state", "Within the window.", count, 8, "", q(`sum by (guard, provider, from, to) (increase(redrive_guard_transitions_total{<guard>}[w]))`, "{{provider}}: {{from}} to {{to}}")},
		}},
		{"Calls", 8, []panel{
			{lines, "Calls by their end", "What the ends of calls say: success, permanent, transient, network, limited.", each, 8, "", q(`sum by (guard, provider, class) (rate(redrive_guard_calls_total{<guard>}[w]))`, "{{provider}} {{class}}")},
			{lines, "Asked for, and allowed", "Live calls a second that are asked of a provider, what a limited one gets, and what the backlog gets.", each, 8, "", []query{
				{`sum by (guard, provider) (redrive_guard_demand{<guard>})`, "{{provider}} asked"}, {`min by (guard, provider) (redrive_guard_rate_cap{<guard>})`, "{{provider}} cap"},
				{`sum by (guard, provider) (redrive_guard_drain_rate{<guard>})`, "{{provider}} backlog"}}},
			{lines, "In flight", "Calls of a provider that are under way.", count, 8, "", q(`sum by (guard, provider) (redrive_guard_calls_in_flight{<guard>})`, "{{provider}}")},
			{lines, "Put off", "Requests that went into the queue instead, or could not, by reason.", each, 8, "", q(`sum by (guard, reason) (rate(redrive_guard_deferred_total{<guard>}[w]))`, "{{reason}}")},
			{lines, "Not asked, tried with another", "Live calls that a provider was not asked for, and requests that were tried with a second one.", each, 8, "", []query{
				{`sum by (guard, provider) (rate(redrive_guard_refused_total{<guard>}[w]))`, "{{provider}} not asked"}, {`sum by (guard) (rate(redrive_guard_failovers_total{<guard>}[w]))`, "{{guard}} second"}}},
			{lines, "By token", "Calls by the token of the caller.", each, 8, "", q(`sum by (guard, token) (rate(redrive_guard_token_calls_total{<guard>}[w]))`, "{{token}}")},
		}},
		{"What waits", 8, []panel{
			{lines, "Waiting", "What waits in the guard's queue.", count, 12, "", q(`max by (job, queue) (redrive_queue_messages{job=~"$job", queue=~"$guard", state="waiting"})`, "{{queue}}")},
			{lines, "Oldest due", "How long the oldest due message of the guard's queue has been due.", seconds, 12, "", q(`max by (job, queue) (redrive_oldest_message_age_seconds{job=~"$job", queue=~"$guard", state="due"})`, "{{queue}}")},
		}},
	},
}

var brokers = board{
	name: "brokers", title: "Redrive / Brokers", says: "Queues that are consumed from Kafka, RabbitMQ, NATS or Redis lists. Which series there are depends on the broker.",
	by: "queue", values: "redrive_source_up",
	rows: []row{
		{"The brokers", 8, []panel{
			{lines, "Answers", "1 if the broker answered the daemon at the scrape.", count, 8, "", q(`redrive_source_up{<queue>}`, "{{queue}} {{instance}}")},
			{lines, "Lag", "Messages at the broker that no consumer of ours has taken.", count, 8, "", q(`max by (job, queue) (redrive_source_lag_messages{<queue>})`, "{{queue}}")},
			{lines, "In flight", "Messages of the broker in these processes: buffered, unacked, uncommitted.", count, 8, "", q(`sum by (queue, state) (redrive_source_messages{<queue>})`, "{{queue}} {{state}}")},
			{lines, "Oldest unacked", "How long the message has been in flight that has been so longest (Kafka). It holds the committed offset.", seconds, 8, "", q(`max by (job, queue) (redrive_source_oldest_unacked_age_seconds{<queue>})`, "{{queue}}")},
			{lines, "Native dead letters", "Dead letters at the broker, of queues with dead_letters: native.", count, 8, "", q(`max by (job, queue) (redrive_source_dead_letters{<queue>})`, "{{queue}}")},
			{lines, "Connected again", "How often the connection was made anew within the window.", count, 8, "", q(`sum by (queue) (increase(redrive_source_reconnects_total{<queue>}[w]))`, "{{queue}}")},
		}},
		{"What goes through", 8, []panel{
			{lines, "Attempts", "Attempts that ended, by what became of the message.", each, 8, "", q(`sum by (queue, outcome) (rate(redrive_attempts_total{<queue>}[w]))`, "{{queue}} {{outcome}}")},
			{lines, "Parked", "Messages that went into the store, to be retried or as dead letters: of all brokers, and what the ledger of the queues says.", each, 8, "", []query{
				{`sum(rate(redrive_parked_total{<job>}[w]))`, "all"}, {`sum by (queue) (max by (job, queue) (rate(redrive_ledger_messages_total{<queue>, entry="parked"}[w])))`, "{{queue}}"}}},
			{lines, "In the store", "Messages of these queues that wait or are dead in the store.", count, 8, "", q(`sum by (queue, state) (max by (job, queue, state) (redrive_queue_messages{<queue>, state=~"waiting|dead"}))`, "{{queue}} {{state}}")},
		}},
	},
}
