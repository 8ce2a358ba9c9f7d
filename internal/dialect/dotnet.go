package dialect

import (
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// NServiceBus. Its times are not those of ISO 8601.
const (
	nsbFailedQ   = "NServiceBus.FailedQ"
	nsbException = "NServiceBus.ExceptionInfo."
	nsbFailedAt  = "NServiceBus.TimeOfFailure"
	nsbEndpoint  = "NServiceBus.ProcessingEndpoint"
	nsbMachine   = "NServiceBus.ProcessingMachine"
	nsbRetries   = "NServiceBus.Retries"
	nsbSent      = "NServiceBus.TimeSent"
)

var nserviceBus = reader{
	dialect: NServiceBus,
	shows:   func(name string) bool { return name == nsbFailedQ || strings.HasPrefix(name, nsbException) },
	// TimeSent stays with the message: it is given by its sender, not by who failed.
	owns: anyOf(nsbFailedAt, nsbEndpoint, nsbMachine, nsbRetries, "NServiceBus.Retries.Timestamp", "NServiceBus.FLRetries"),
	read: readNServiceBus,
}

func readNServiceBus(n notes, l *Letter) {
	text := func(name string) string { return n.text(nsbException + name) }
	queue, _, _ := strings.Cut(n.text(nsbFailedQ), "@") // queue@machine
	l.Place.Queue = queue
	l.DiedAt = nsbMoment(n.text(nsbFailedAt))
	if sent, ok := l.Headers.Get(nsbSent); ok {
		l.Place.At = nsbMoment(sent)
	}
	if retries, ok := decimal(n.last(nsbRetries)); ok {
		l.Attempts = count(retries+1, true)
	}
	details := map[string]string{"nservicebus.source": text("Source"), "nservicebus.help": text("HelpLink")}
	for _, v := range n {
		if name, ok := strings.CutPrefix(v.Name, nsbException+"Data."); ok && len(details) < 24 {
			details["nservicebus.data."+name] = string(v.Value)
		}
	}
	types := []string{text("ExceptionType"), text("InnerExceptionType")}
	l.Reason = redrive.ReasonExhausted
	if strings.HasSuffix(short(types[0]), "DeserializationException") {
		l.Reason = redrive.ReasonUndecodable
	}
	l.fail(&redrive.Failure{
		Types: types, Message: text("Message"), Stack: text("StackTrace"), Service: n.text(nsbEndpoint), Host: n.text(nsbMachine), Details: details,
	})
}

// nsbMoment reads a time of NServiceBus, which has a colon before the microseconds.
func nsbMoment(text string) time.Time {
	const dot = len("2006-01-02 15:04:05")
	if len(text) <= dot || text[dot] != ':' {
		t, _ := time.Parse(time.RFC3339Nano, text)
		return within(t)
	}
	t, _ := time.Parse("2006-01-02 15:04:05.000000 Z", text[:dot]+"."+text[dot+1:])
	return within(t)
}

// MassTransit. Skipped messages, which no consumer wanted, have only MT-Reason.
const (
	mtFault  = "MT-Fault-"
	mtReason = "MT-Reason"
	mtHost   = "MT-Host-"
)

var massTransit = reader{
	dialect: MassTransit,
	shows:   func(name string) bool { return strings.HasPrefix(name, mtFault) || name == mtReason },
	owns:    func(name string) bool { return strings.HasPrefix(name, mtHost) || name == "MT-Redelivery-Count" },
	read:    readMassTransit,
}

func readMassTransit(n notes, l *Letter) {
	text := func(name string) string { return n.text(mtFault + name) }
	address := text("InputAddress")
	if u, err := url.Parse(address); err == nil && address != "" {
		l.Place.Queue = strings.Trim(path.Base(u.Path+u.Opaque), "/.") // scheme://host/vhost/queue, or queue:NAME
	}
	at, _ := time.Parse(time.RFC3339Nano, text("Timestamp"))
	l.DiedAt = within(at)
	if retries, ok := decimal(n.last(mtFault + "RetryCount")); ok {
		l.Attempts = count(retries+1, true)
	}
	why := n.text(mtReason)
	switch {
	case strings.HasSuffix(short(text("ExceptionType")), "SerializationException"):
		l.Reason = redrive.ReasonUndecodable
	case why == "skip", why == "dead-letter":
		l.Reason = redrive.ReasonUnroutable
	default:
		l.Reason = redrive.ReasonExhausted
	}
	f := &redrive.Failure{
		Types: []string{text("ExceptionType")}, Message: text("Message"), Stack: text("StackTrace"), Service: text("ConsumerType"),
		Host: n.text(mtHost + "MachineName"), PID: count(decimal(n.last(mtHost + "ProcessId"))), Version: n.text(mtHost + "AssemblyVersion"),
		Details: map[string]string{
			"masstransit.reason": why, "masstransit.message-type": text("MessageType"), "masstransit.address": redacted(address),
			"masstransit.redeliveries": n.text("MT-Redelivery-Count"), "masstransit.process": n.text(mtHost + "ProcessName"),
		},
	}
	if f.Message == "" && l.Reason == redrive.ReasonUnroutable {
		f.Types, f.Message = []string{"masstransit.Skipped"}, "no consumer took it"
	}
	l.fail(f)
}

// redacted leaves user and password out of an address.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

// Azure Service Bus, whose properties bridges carry as headers.
var azureServiceBus = reader{
	dialect: AzureServiceBus,
	shows:   anyOf("DeadLetterReason", "DeadLetterErrorDescription"),
	owns:    anyOf("DeadLetterSource", "DeliveryCount", "SequenceNumber", "EnqueuedTime", "EnqueuedTimeUtc"),
	read:    readAzure,
}

// azureReasons are those of the service itself; programs write their own.
var azureReasons = map[string]redrive.Reason{
	"MaxDeliveryCountExceeded": redrive.ReasonExhausted, "TTLExpiredException": redrive.ReasonExpired, "HeaderSizeExceeded": redrive.ReasonOversize,
	"MaxTransferHopCountExceeded": redrive.ReasonLoop,
}

func readAzure(n notes, l *Letter) {
	why := n.text("DeadLetterReason")
	if r, ok := azureReasons[why]; ok {
		l.Reason = r
	}
	l.Attempts = count(decimal(n.last("DeliveryCount")))
	l.Place.Queue = n.text("DeadLetterSource")
	at, _ := time.Parse(time.RFC3339Nano, string(n.last("EnqueuedTime", "EnqueuedTimeUtc")))
	l.Place.At = within(at)
	l.fail(&redrive.Failure{
		Types: []string{why}, Message: n.text("DeadLetterErrorDescription"), Details: map[string]string{"azure.sequence": n.text("SequenceNumber")},
	})
}
