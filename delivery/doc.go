// Package delivery delivers messages to HTTP targets.
//
// A [Handler] posts the body of a message byte for byte, signs it by the Standard
// Webhooks scheme where the target has a secret, and turns the answer into what the
// engine understands: 2xx is done, 410 disables the target, Retry-After is obeyed,
// a receiver may decide by [HeaderDelivery], everything else is a failure with the status and a redacted excerpt of the answer.
//
// What it never does: follow a redirect, use a proxy of the environment, let
// net/http repeat a request behind the engine's back, decompress an answer, wait
// longer than the target's timeout, or connect to an address that the guard against
// server-side request forgery refuses (see [Target.AllowPrivate]). Refusals of our
// own pause the target and give the message back; they never make a dead letter.
//
// # What leaves
//
// Beside its body a delivery carries
//
//	content-type       the message's, or application/octet-stream
//	webhook-id         the message's id, the same in every attempt
//	webhook-timestamp  of the attempt, in Unix seconds
//	webhook-signature  one v1 signature a secret, separated by spaces
//	redrive-attempt    from 1
//	redrive-queue, redrive-kind
//	traceparent        the message's, with its tracestate, if it is valid; with tracing the attempt's
//	user-agent         redrive/VERSION
//
// and the message's other headers, without white space around their values, except
// those that belong to one connection (Connection, Upgrade and the like), Host,
// Content-Length, Expect, credentials (Authorization, Cookie), User-Agent, and names
// that begin with webhook-, proxy- or redrive- (what the engine itself says of a
// result or of a possible duplicate is passed on). A name or value that HTTP does not
// allow is left out and counted: see [Handler.DroppedHeaders] and the detail
// dropped_headers of a failure. Credentials come from [Target.Headers] only, which
// replace headers of the message with the same name.
package delivery
