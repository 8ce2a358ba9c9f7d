package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// sendTimeout bounds a message. It is shorter than what is left of a lease that was just looked at.
const sendTimeout = 8 * time.Second

// message is what a receiver gets.
type message struct {
	id          string // the same for a message that is sent again
	firing      []wire.Alert
	over        []wire.Alert
	environment string
	at          time.Time
}

// sender delivers messages to one receiver.
type sender interface {
	send(ctx context.Context, m *message) error
	to() string // host or mailboxes, without secrets
}

// How a receiver that fails is treated.
const (
	firstRetry  = 10 * time.Second // doubled with each try
	lastRetry   = 5 * time.Minute
	unsentAfter = 30 * time.Second // then the others get an alert
)

// receiver is a receiver with what became of its messages.
type receiver struct {
	conf       config.Receiver
	name, kind string
	dest       string // as people see it
	new        func() (sender, error)

	sender  sender // nil: not built yet
	address string // what the sender was built for

	sent, failing, next time.Time
	tries               int // that failed in a row
	err                 string
	back                bool // the newest message was taken, and the one before was not
}

func newReceiver(r *config.Receiver, build func() (sender, error)) *receiver {
	out := &receiver{conf: *r, name: r.Label(), kind: r.Kind(), new: build}
	_, _ = out.ready() // else it is tried again with each message
	return out
}

// ready returns what sends to the receiver. Its address may be kept elsewhere, and is read anew, as are the
// other secrets when something is sent.
func (r *receiver) ready() (sender, error) {
	address, err := r.conf.URL().Resolve()
	if err != nil {
		return nil, err
	}
	if r.sender == nil || address != r.address {
		s, err := r.new()
		if err != nil {
			return nil, err
		}
		r.sender, r.address, r.dest = s, address, s.to()
	}
	return r.sender, nil
}

func (r *receiver) repeats() bool { return r.kind == config.ReceiverAlertmanager }

// note takes what became of a message.
func (r *receiver) note(err error, now time.Time) {
	r.back = err == nil && r.tries > 0
	if err == nil {
		r.sent, r.failing, r.next, r.tries, r.err = now, time.Time{}, time.Time{}, 0, ""
		return
	}
	if r.tries++; r.failing.IsZero() {
		r.failing = now
	}
	r.err, r.next = text.Clean(printable(err.Error()), summaryText), now.Add(min(firstRetry<<min(r.tries-1, 10), lastRetry))
}

// newSender builds what sends to a receiver. Errors contain no secrets.
func newSender(r *config.Receiver, version string) (sender, error) {
	if r.Kind() == config.ReceiverEmail {
		return newMailer(r)
	}
	address, err := r.URL().Resolve()
	if err != nil {
		return nil, err
	}
	p := &poster{body: webhookBody}
	switch r.Kind() {
	case config.ReceiverSlack:
		p.body = slackBody
	case config.ReceiverAlertmanager:
		p.body = alertmanagerBody
		address = strings.TrimRight(address, "/") + "/api/v2/alerts"
	}
	target, err := targetOf(address, r)
	if err != nil {
		return nil, err
	}
	if p.handler, err = delivery.New(target, delivery.Options{Version: version}); err != nil {
		return nil, err
	}
	return p, nil
}

// targetOf is a receiver as a target: with the guard, headers and signature that deliveries have.
func targetOf(address string, r *config.Receiver) (delivery.Target, error) {
	t := delivery.Target{URL: address, Timeout: sendTimeout, AllowPrivate: r.AllowPrivate, Headers: make(map[string]string, len(r.Headers))}
	if !r.Secret.IsZero() {
		t.Secrets = []string{r.Secret.Reference()}
	}
	for name, value := range r.Headers {
		t.Headers[name] = value.Reference()
	}
	for _, text := range r.AllowCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return t, fmt.Errorf("%w network %q", redrive.ErrInvalid, text)
		}
		t.AllowCIDRs = append(t.AllowCIDRs, p)
	}
	return t, nil
}

// poster sends by HTTP.
type poster struct {
	handler *delivery.Handler
	body    func(*message) any
}

func (p *poster) to() string { return p.handler.Target() }

func (p *poster) send(ctx context.Context, m *message) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p.body(m)); err != nil {
		return err
	}
	return post(ctx, p.handler, m.id, b.Bytes())
}

// post sends one request as a delivery is sent, once.
func post(ctx context.Context, h *delivery.Handler, id string, body []byte) error {
	d := &redrive.Delivery{Message: redrive.Message{ID: id, Kind: "alert", Body: body}, Attempt: 1}
	d.Headers.Add("content-type", "application/json")
	err := h.ServeDelivery(ctx, d)
	var answer *delivery.ResponseError
	if errors.As(err, &answer) && answer.Excerpt != "" {
		return fmt.Errorf("%w: %s", err, printable(answer.Excerpt))
	}
	return err
}

// newHeartbeat returns what posts heartbeats to an address.
func newHeartbeat(a *config.Alerts, address, version string) (func(ctx context.Context, id string) error, error) {
	h, err := delivery.New(delivery.Target{URL: address, Timeout: sendTimeout, AllowPrivate: a.AllowPrivate}, delivery.Options{Version: version})
	return func(ctx context.Context, id string) error { return post(ctx, h, id, nil) }, err
}

// pulse posts heartbeats.
type pulse struct {
	address config.Secret
	new     func(address string) (func(context.Context, string) error, error)
	beat    func(context.Context, string) error
	at      string // what beat is for
	failed  bool   // the newest
}

// post posts one to where the address leads at this moment.
func (p *pulse) post(ctx context.Context, id string) error {
	at, err := p.address.Resolve()
	if err != nil {
		return err
	}
	if p.beat == nil || at != p.at {
		beat, err := p.new(at)
		if err != nil {
			return err
		}
		p.beat, p.at = beat, at
	}
	return p.beat(ctx, id)
}

// Check reports what would keep alerts from being sent, by the path of what is wrong: secrets that are
// not there, and addresses that nothing allows. It connects to nothing.
func Check(a *config.Alerts, say func(path string, err error)) {
	for i := range a.Receivers {
		r, path := &a.Receivers[i], fmt.Sprintf("alerts.receivers[%d]", i)
		if _, err := newSender(r, ""); err != nil {
			say(path, err)
			continue
		}
		for _, s := range append([]config.Secret{r.Secret, r.Password}, values(r.Headers)...) {
			if s.IsZero() {
				continue
			}
			if _, err := s.Resolve(); err != nil {
				say(path, err)
			}
		}
		if r.Kind() != config.ReceiverEmail {
			checkAddress(path, r.URL(), r, say)
		}
	}
	if !a.Heartbeat.IsZero() {
		checkAddress("alerts.heartbeat", a.Heartbeat, &config.Receiver{AllowPrivate: a.AllowPrivate}, say)
	}
}

func checkAddress(path string, address config.Secret, r *config.Receiver, say func(string, error)) {
	text, err := address.Resolve()
	if err == nil {
		var t delivery.Target
		if t, err = targetOf(text, r); err == nil {
			err = delivery.Blocked(t)
		}
	}
	if err != nil {
		say(path, err)
	}
}

func values(m map[string]config.Secret) (all []config.Secret) {
	for _, s := range m {
		all = append(all, s)
	}
	return all
}

// The forms of messages.

// webhookMessage is what a webhook gets.
type webhookMessage struct {
	ID          string       `json:"id"`
	At          time.Time    `json:"at"`
	Environment string       `json:"environment"`
	Title       string       `json:"title"`
	Text        string       `json:"text"`
	Firing      []wire.Alert `json:"firing"`
	Over        []wire.Alert `json:"over"`
	More        int          `json:"more"` // that fire, and are not listed
}

func webhookBody(m *message) any {
	firing, more := m.listed(m.firing)
	over, _ := m.listed(m.over)
	return webhookMessage{ID: m.id, At: m.at, Environment: m.environment, Title: m.title(), Text: m.text(plainText), Firing: firing, Over: over, More: more}
}

func slackBody(m *message) any {
	return map[string]any{"text": "*" + slackText(m.title()) + "*\n" + m.text(slackText)}
}

// slackText escapes what Slack reads as markup.
func slackText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// alertmanagerAlert is one of POST /api/v2/alerts.
type alertmanagerAlert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// alertmanagerKeeps is how long an Alertmanager takes an alert to fire that is not repeated.
const alertmanagerKeeps = 15 * time.Minute

func alertmanagerBody(m *message) any {
	all := []alertmanagerAlert{}
	add := func(a *wire.Alert, ends time.Time) {
		one := alertmanagerAlert{
			Labels:      map[string]string{"alertname": "redrive_" + a.Rules[0], "subject": a.Subject, "environment": m.environment, "service": "redrive"},
			Annotations: map[string]string{"summary": a.Summary, "next": a.Next}, StartsAt: a.Since, EndsAt: ends, GeneratorURL: a.Link,
		}
		if a.Queue != "" {
			one.Labels["queue"] = a.Queue
		}
		for name, n := range a.Numbers {
			one.Annotations[name] = fmt.Sprint(n)
		}
		all = append(all, one)
	}
	for i := range m.firing {
		add(&m.firing[i], m.at.Add(alertmanagerKeeps))
	}
	for i := range m.over {
		add(&m.over[i], m.over[i].EndedAt.UTC())
	}
	return all
}
