package daemon

import (
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/wire"
)

// operation is what the API's description says of a route beyond the route itself.
type operation struct {
	id      string // for generated clients
	summary string
	query   []string    // names in parameterKinds
	headers []string    // of the request, names in parameterKinds
	body    any         // a value of the request's type, or a rawBody; nil: none
	answers map[int]any // a value of the answer's type, a rawBody, or nil for no body
}

// rawBody is a body that is not one JSON value: its media types.
type rawBody []string

// alsoAs is a JSON value that can be had as other media types, too.
type alsoAs struct {
	value any
	media []string
}

var (
	anyBody   = rawBody{"*/*"}
	sentBody  = rawBody{"application/octet-stream", "application/json", "text/plain"}
	textLines = rawBody{"application/x-ndjson"}
	sentLines = rawBody{"application/x-ndjson", "text/plain"}

	pageOf = []string{"after", "limit"}
	// A list of dead letters knows their state, one of a queue's messages their queue.
	deadArgs    = append(wire.FieldNames("state", "retrying"), pageOf...)
	messageArgs = append(wire.FieldNames("queue"), pageOf...)
)

// publishBody is what a publish takes: anything, or these where the type says so.
type publishBody struct{}

// ok is an answer with status 200.
func ok(v any) map[int]any { return map[int]any{200: v} }

// operations describes every route, by method and pattern.
var operations = map[string]operation{
	"GET /v1/me":      {id: "me", summary: "Tell who asks, what the token allows, and which daemons are on the store.", answers: ok(wire.Me{})},
	"POST /v1/logins": {id: "createLogin", summary: "Make a link that logs the caller in to the pages, once, within a minute.", answers: map[int]any{201: wire.Login{}}},
	"POST /v1/queues/{queue}/messages": {id: "publish", summary: "Publish one message (any body), a stream of messages (NDJSON), or CloudEvents.", body: publishBody{},
		headers: []string{headername.ID, headername.Kind, headername.Key, headername.Delay, headername.DeliverAt, headername.ExpiresAt, headername.ReplyTo, "idempotency-key"},
		answers: map[int]any{200: textLines, 202: oneOf{wire.Accepted{}, wire.AcceptedBatch{}}}},
	"POST /v1/queues/{queue}/claims":              {id: "claim", summary: "Claim messages, and wait for them if nothing is due.", body: wire.ClaimRequest{}, answers: ok(wire.Claims{})},
	"POST /v1/queues/{queue}/extensions":          {id: "extend", summary: "Extend the leases of claimed messages.", body: wire.ExtendRequest{}, answers: ok(wire.Results{})},
	"POST /v1/queues/{queue}/settlements":         {id: "settle", summary: "Tell what became of claimed messages.", body: wire.SettleRequest{}, answers: ok(wire.Results{})},
	"POST /v1/call/{queue}":                       {id: "call", summary: "Call a guarded target, or put the call off while it is sick. The answer is the target's own.", query: []string{"repeat"}, body: sentBody, answers: map[int]any{202: wire.Accepted{}, anyStatus: anyBody}},
	"GET /v1/call/{queue}/{id}":                   {id: "callResult", summary: "Fetch the result of a call that was put off.", answers: map[int]any{202: wire.CallStatus{}, anyStatus: anyBody}},
	"GET /v1/guards":                              {id: "listGuards", summary: "List the guards.", answers: ok(wire.List[wire.Guard]{})},
	"GET /v1/guards/{queue}":                      {id: "showGuard", summary: "Show a guard and its endpoints.", answers: ok(wire.Guard{})},
	"POST /v1/guards/{queue}/force":               {id: "forceGuard", summary: "Force the state of a guard's endpoints.", body: wire.ForceRequest{}, answers: ok(wire.Guard{})},
	"GET /v1/queues":                              {id: "listQueues", summary: "List the queues: all, or with a limit in pages.", query: pageOf, answers: ok(wire.List[wire.Queue]{})},
	"GET /v1/queues/{queue}":                      {id: "showQueue", summary: "Show a queue.", answers: ok(wire.Queue{})},
	"POST /v1/queues/{queue}/pause":               {id: "pauseQueue", summary: "Stop claiming from a queue.", body: wire.PauseRequest{}, answers: ok(wire.Queue{})},
	"POST /v1/queues/{queue}/resume":              {id: "resumeQueue", summary: "Claim from a paused queue again.", body: wire.PauseRequest{}, answers: ok(wire.Queue{})},
	"GET /v1/queues/{queue}/messages":             {id: "listMessages", summary: "List messages of a queue.", query: messageArgs, answers: ok(wire.List[wire.Message]{})},
	"GET /v1/queues/{queue}/messages/{id}":        {id: "showMessage", summary: "Show a message, or how it ended; with wait also one that is not there yet.", query: []string{"wait", "unmasked"}, answers: ok(wire.Message{})},
	"DELETE /v1/queues/{queue}/messages/{id}":     {id: "dropMessage", summary: "Drop a waiting message.", answers: ok(wire.Changed{})},
	"GET /v1/queues/{queue}/processing":           {id: "listProcessing", summary: "List what is in flight, at the queue's source and in the store; the lease that ends first comes first.", query: []string{"limit"}, answers: ok(wire.List[wire.Message]{})},
	"GET /v1/events":                              {id: "listen", summary: "Stream changes of queues, causes and plans (topics, with commas between) as server-sent events, the whole state first. Each is {topic, key, item}, or removed.", query: []string{"topics"}, answers: ok(rawBody{"text/event-stream"})},
	"GET /v1/queues/{queue}/series":               {id: "queueSeries", summary: "Show what the daemon that answers published and delivered of a queue, by minute, for the last hour.", answers: ok(wire.Series{})},
	"GET /v1/queues/{queue}/monitor":              {id: "monitorQueue", summary: "Show consumers, attempts and dead letters of a queue that is a Redis stream.", answers: ok(wire.Monitor{})},
	"GET /v1/dead-letters":                        {id: "listDeadLetters", summary: "List dead letters.", query: deadArgs, answers: ok(wire.List[wire.Message]{})},
	"POST /v1/dead-letters":                       {id: "importDeadLetters", summary: "Import dead letters, one a line, as an export has them; with lines=true each line is answered, with restore=false what was archived or dropped since stays away.", query: []string{"lines", "restore"}, body: sentLines, answers: ok(wire.Imported{})},
	"GET /v1/causes":                              {id: "listCauses", summary: "Count dead letters by cause, and tell which causes grow, and what was decided of each; life narrows to a state.", query: append([]string{"life"}, deadArgs...), answers: ok(wire.List[wire.Cause]{})},
	"GET /v1/causes/{signature}/deaths":           {id: "causeDeaths", summary: "Show when messages died of a cause: by minute, hour and day.", query: []string{"queue", "reason", "since"}, answers: ok(wire.List[wire.Deaths]{})},
	"PUT /v1/causes/{signature}":                  {id: "changeCause", summary: "Acknowledge, ignore or resolve a cause, with a note and a link; new takes that back.", body: wire.CauseChange{}, answers: ok(wire.CauseLife{})},
	"GET /v1/causes/{signature}/facets":           {id: "causeFacets", summary: "Show what a sample of a cause's dead letters has in common; of bodies only keys without the scope read-payload.", query: []string{"queue", "sample"}, answers: ok(wire.Facets{})},
	"GET /v1/causes/{signature}/verdict":          {id: "causeVerdict", summary: "Say what a cause looks like (the target is down, credentials, poison data, a bug, or unclear), with the numbers.", query: []string{"queue", "sample"}, answers: ok(wire.Verdict{})},
	"POST /v1/counts":                             {id: "createCount", summary: "Count what matches a filter, dead letters unless it names a state: at once (200) where counters know it, else in the background (202), one at a time a store. The result is kept for 10 minutes.", body: wire.CountRequest{}, answers: map[int]any{200: wire.Count{}, 202: wire.Count{}}},
	"GET /v1/counts/{id}":                         {id: "showCount", summary: "Show how far a count is, or its result.", answers: ok(wire.Count{})},
	"DELETE /v1/counts/{id}":                      {id: "cancelCount", summary: "Cancel a count.", answers: ok(wire.Count{})},
	"GET /v1/queues/{queue}/dead-letters/{id}":    {id: "showDeadLetter", summary: "Show a dead letter with its failure history.", query: []string{"unmasked", "wait"}, answers: ok(wire.Message{})},
	"PATCH /v1/queues/{queue}/dead-letters/{id}":  {id: "editDeadLetter", summary: "Edit a dead letter; the original is kept.", body: wire.Edit{}, answers: ok(wire.Changed{})},
	"DELETE /v1/queues/{queue}/dead-letters/{id}": {id: "dropDeadLetter", summary: "Drop a dead letter.", answers: ok(wire.Changed{})},
	"POST /v1/plans":                              {id: "createPlan", summary: "Redrive, drop, archive, repair or restore dead letters, or retry what waits, by a plan, or only count them (dry_run). A start that is repeated with the same id is answered with the plan that is there (200).", body: wire.PlanRequest{}, answers: map[int]any{200: oneOf{wire.DryRun{}, wire.Plan{}}, 201: wire.Plan{}}},
	"GET /v1/plans":                               {id: "listPlans", summary: "List the plans.", answers: ok(wire.List[wire.Plan]{})},
	"GET /v1/plans/{id}":                          {id: "showPlan", summary: "Show a plan and its progress.", query: []string{"progress"}, answers: ok(wire.Plan{})},
	"PATCH /v1/plans/{id}":                        {id: "changePlan", summary: "Change the rate or the canary of a plan, also while it runs.", body: wire.PlanChange{}, answers: ok(wire.Plan{})},
	"GET /v1/plans/{id}/results":                  {id: "planResults", summary: "Show what became of each message of a plan.", query: pageOf, answers: ok(wire.List[wire.PlanResult]{})},
	"POST /v1/plans/{id}/cancel":                  {id: "cancelPlan", summary: "Cancel a plan.", answers: ok(wire.Plan{})},
	"POST /v1/plans/{id}/pause":                   {id: "pausePlan", summary: "Pause a plan.", answers: ok(wire.Plan{})},
	"POST /v1/plans/{id}/release":                 {id: "releasePlan", summary: "Let a plan run that another proposed. Needs the scope redrive, of a plan that drops purge.", answers: ok(wire.Plan{})},
	"POST /v1/plans/{id}/resume":                  {id: "resumePlan", summary: "Resume a plan that was paused or stopped, at another rate or with another canary if these are given.", body: wire.PlanChange{}, answers: ok(wire.Plan{})},
	"GET /v1/ws":                                  {id: "websocket", summary: "Upgrade to a WebSocket with the subprotocol redrive.v1.json.", answers: map[int]any{101: nil}},
	"GET /v1/sessions":                            {id: "listSessions", summary: "List the sessions of WebSocket clients.", query: pageOf, answers: ok(wire.List[wire.Session]{})},
	"GET /v1/alerts":                              {id: "listAlerts", summary: "List what alerts fire now, since when, and when what was sent to whom.", answers: ok(wire.Alerts{})},
	"POST /v1/alerts/test":                        {id: "testAlerts", summary: "Send a test message to each receiver of alerts.", answers: ok(wire.List[wire.AlertTested]{})},
	"POST /v1/verify":                             {id: "acknowledgeLoss", summary: "Count as dropped what other programs deleted from the store, so that the ledger balances.", body: wire.AcknowledgeRequest{}, answers: ok(wire.Verified{})},
	"GET /v1/verify":                              {id: "verify", summary: "Compare the ledger with the counters of what is there, or with a scan of it (scan=true).", query: []string{"queue", "scan"}, answers: ok(wire.Verified{})},
	"GET /v1/probe":                               {id: "probeStore", summary: "Show what the store's settings promise.", answers: ok(wire.List[wire.Finding]{})},
	"GET /v1/backup":                              {id: "backup", summary: "Download a consistent copy of the store.", answers: ok(rawBody{"application/octet-stream"})},
	"GET /debug/pprof/{profile}":                  {id: "profile", summary: "Profile the process that answers, for go tool pprof: heap, allocs, goroutine, mutex, block or threadcreate; profile (of the processor) and trace take seconds, 10 by default.", query: []string{"seconds", "debug"}, answers: ok(rawBody{"application/octet-stream", "text/plain"})},
	"GET /v1/config":                              {id: "showConfig", summary: "Show the configuration in force, without secrets.", answers: ok(shownConfig{})},
	"GET /v1/tokens":                              {id: "listTokens", summary: "List the tokens and their use.", answers: ok(wire.List[wire.Token]{})},
	"GET /v1/report":                              {id: "report", summary: "Tell what happened since a time (24 h, or 24 h before the plan was made): causes, plans with their outcomes, who did what, what is still dead, the ledger. format is json, markdown or html.", query: []string{"since", "plan", "format"}, answers: ok(alsoAs{wire.Report{}, []string{"text/markdown", "text/html"}})},
	"GET /v1/audit":                               {id: "listAudit", summary: "List who changed what, the newest first.", query: []string{"actor", "action", "queue", "plan", "since", "until", "after", "limit"}, answers: ok(wire.List[wire.AuditEntry]{})},
	"GET /metrics":                                {id: "metrics", summary: "Metrics in the text format of Prometheus.", answers: ok(rawBody{"text/plain", "application/openmetrics-text"})},
	"GET /healthz":                                {id: "healthz", summary: "Whether the process lives.", answers: ok(health{})},
	"GET /readyz":                                 {id: "readyz", summary: "Whether messages are taken and delivered.", answers: ok(health{})},
	"GET /openapi.json":                           {id: "openapi", summary: "This description.", answers: ok(rawBody{"application/json"})},
}
