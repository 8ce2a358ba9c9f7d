// Package headername names the headers of Redrive that the root package does not export:
// those of requests and deliveries, and those under which a message stands at a broker.
package headername

// Prefix begins the names of all headers of ours; messages may not set them.
const Prefix = "redrive-"

// Headers of a message: as a publish over HTTP gives them and as a broker carries them.
const (
	ID        = "redrive-id"
	Kind      = "redrive-kind"
	Key       = "redrive-key" // at a broker: where it has no key of its own
	ReplyTo   = "redrive-reply-to"
	ExpiresAt = "redrive-expires-at"
	Delay     = "redrive-delay"
	DeliverAt = "redrive-deliver-at"
	Own       = "redrive-header-" // begins a header of the message itself
)

// Headers of deliveries, calls and results.
const (
	Attempt   = "redrive-attempt" // from 1
	Queue     = "redrive-queue"
	Status    = "redrive-status"    // of a result: the target's HTTP status
	Truncated = "redrive-truncated" // "true": the target's answer was too long
	Provider  = "redrive-provider"
	Repeat    = "redrive-repeat"
	Published = "redrive-published" // a call that was not made but published: only a 2xx is a success
)

// Headers of a message at a broker.
const (
	Generation = "redrive-generation"
	Redrives   = "redrive-redrives"
	Plan       = "redrive-plan"
	Origin     = "redrive-origin"
	EditedFrom = "redrive-edited-from"
	// NativeKey and NativeKind hold what is no key or kind of ours: too long, or not text.
	NativeKey  = "redrive-native-key"
	NativeKind = "redrive-native-kind"
	// NativeHeader holds NAME=VALUE of a header whose name cannot be one of ours.
	NativeHeader = "redrive-native-header"
	Due          = "redrive-due"             // when a record of a Kafka retry topic is due
	Packed       = "redrive-headers"         // all headers of a message whose headers NATS cannot carry
	NativeNats   = "redrive-native-Nats-"    // begins a header that would instruct a NATS server
	Damaged      = "redrive-damaged-headers" // holds what a disk made of a message's headers, where they cannot be read
	Order        = "redrive-header-order"    // the order of headers, which a table of AMQP does not have
	NativeAMQP   = "redrive-amqp-"           // begins a header that would mean something to RabbitMQ
)

// Headers that say why a message is retried or dead-lettered at its broker.
const (
	Attempts      = "redrive-attempts"
	Crashes       = "redrive-crashes"
	Failures      = "redrive-failures" // those that count
	DiedAt        = "redrive-died-at"
	FirstFailedAt = "redrive-first-failed-at"
	LastFailedAt  = "redrive-last-failed-at"
	ErrorType     = "redrive-error-type"
	Signature     = "redrive-signature"
	FirstFailure  = "redrive-first-failure" // as JSON, cut to what headers can bear; so is the last
	LastFailure   = "redrive-last-failure"
)

// Headers that say where a dead letter came from at its broker, so that it can be
// published there again. They stay with the message in every store.
const (
	OriginalTopic      = "redrive-original-topic"     // Kafka
	OriginalPartition  = "redrive-original-partition" // Kafka
	OriginalOffset     = "redrive-original-offset"    // Kafka; JetStream's stream sequence
	OriginalGroup      = "redrive-original-group"     // the consumer group or durable consumer
	OriginalExchange   = "redrive-original-exchange"  // RabbitMQ; empty is the default exchange
	OriginalRoutingKey = "redrive-original-routing-key"
	OriginalQueue      = "redrive-original-queue"  // RabbitMQ
	OriginalStream     = "redrive-original-stream" // JetStream, Redis
	OriginalSubject    = "redrive-original-subject"
	OriginalTimestamp  = "redrive-original-timestamp"
	OriginalNoBody     = "redrive-original-no-body"    // Kafka: its value is null, not empty
	OriginalNoHeaders  = "redrive-original-no-headers" // Kafka: why the record's own headers could not be had
	OriginalForm       = "redrive-original-form"       // RabbitMQ: properties and types of headers; Redis: the body's field
)

// Headers of a message in the spool. They are taken off before it goes on.
const (
	SpoolKey       = "redrive-spool-key"
	SpoolDeliverAt = "redrive-spool-deliver-at"
	SpoolExpiresAt = "redrive-spool-expires-at"
)
