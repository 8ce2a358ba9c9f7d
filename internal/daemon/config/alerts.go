package config

import (
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Alerts says who learns of trouble. With one receiver every rule is on.
type Alerts struct {
	// Receivers get one message when something begins and one when it is over.
	Receivers []Receiver `yaml:"receivers" json:"receivers,omitempty"`
	// Oldest is how long a message may be due in a queue that is not paused. Defaults to 15m.
	Oldest Duration `yaml:"oldest" json:"oldest,omitempty"`
	// Heartbeat is a URL that gets a POST a minute, while alerts are watched and can be sent: whoever
	// misses it knows that nobody else would tell. It may be "env:NAME".
	Heartbeat Secret `yaml:"heartbeat" json:"heartbeat,omitzero"`
	// AllowPrivate lets the heartbeat's URL be on a private or loopback address.
	AllowPrivate bool `yaml:"allow_private" json:"allow_private,omitempty"`
}

// DefaultOldest is the default of Alerts.Oldest.
const DefaultOldest = 15 * time.Minute

// Receiver is where alerts are sent to: by exactly one of Webhook, Slack, Alertmanager and Email.
type Receiver struct {
	// Name tells receivers apart. Defaults to webhook, slack, alertmanager or email.
	Name string `yaml:"name" json:"name,omitempty"`
	// Webhook is a URL that gets JSON, signed with Secret (Standard Webhooks). As each of these URLs it
	// may be "env:NAME", and is shown as its host.
	Webhook Secret `yaml:"webhook" json:"webhook,omitzero"`
	// Slack is an incoming webhook of Slack, or of what understands the same: Mattermost,
	// Rocket.Chat, Discord's /slack.
	Slack Secret `yaml:"slack" json:"slack,omitzero"`
	// Alertmanager is the URL of an Alertmanager, without /api/v2/alerts.
	Alertmanager Secret `yaml:"alertmanager" json:"alertmanager,omitzero"`
	// Email are the addresses that get an e-mail.
	Email []string `yaml:"email" json:"email,omitempty"`
	// From is the sender of e-mails.
	From string `yaml:"from" json:"from,omitempty"`
	// SMTP is the mail server: "smtp://user@host:587" (STARTTLS, where a password is set always) or
	// "smtps://user@host:465".
	SMTP string `yaml:"smtp" json:"smtp,omitempty"`
	// Password of the user in SMTP: "env:NAME".
	Password Secret `yaml:"password" json:"password,omitzero"`
	// Secret signs what goes to Webhook: "whsec_..." or "env:NAME".
	Secret Secret `yaml:"secret" json:"secret,omitzero"`
	// Headers are added to each request. Values may be "env:NAME" and are not shown.
	Headers map[string]Secret `yaml:"headers" json:"headers,omitempty"`
	// AllowPrivate lets the receiver be on a private or loopback address.
	AllowPrivate bool `yaml:"allow_private" json:"allow_private,omitempty"`
	// AllowCIDRs lets the receiver be in these networks, of those that are refused otherwise.
	AllowCIDRs []string `yaml:"allow_cidrs" json:"allow_cidrs,omitempty"`
}

// The kinds of receivers.
const (
	ReceiverWebhook      = "webhook"
	ReceiverSlack        = "slack"
	ReceiverAlertmanager = "alertmanager"
	ReceiverEmail        = "email"
)

// Kind returns how the receiver gets alerts, or "" where that is not clear.
func (r *Receiver) Kind() string {
	kind, n := "", 0
	for k, given := range map[string]bool{ReceiverWebhook: !r.Webhook.IsZero(), ReceiverSlack: !r.Slack.IsZero(), ReceiverAlertmanager: !r.Alertmanager.IsZero(), ReceiverEmail: len(r.Email) > 0} {
		if given {
			kind, n = k, n+1
		}
	}
	if n != 1 {
		return ""
	}
	return kind
}

// Label returns Name, or the kind.
func (r *Receiver) Label() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Kind()
}

// URL returns the address of a receiver that is reached by HTTP.
func (r *Receiver) URL() Secret {
	switch r.Kind() {
	case ReceiverWebhook:
		return r.Webhook
	case ReceiverSlack:
		return r.Slack
	}
	return r.Alertmanager
}

func (a *Alerts) check(k *checker, path string) {
	if len(a.Receivers) == 0 && (a.Oldest != 0 || !a.Heartbeat.IsZero()) {
		k.bad(path, "nobody gets the alerts", "add receivers: [{slack: \"env:SLACK_URL\"}]")
	}
	if a.Oldest == 0 && k.given(path+".oldest") {
		k.bad(path+".oldest", "every message is due for a moment", "write a duration such as 15m")
	}
	checkSecretURL(k, path+".heartbeat", a.Heartbeat)
	var names []string
	for i := range a.Receivers {
		r, at := &a.Receivers[i], fmt.Sprintf("%s.receivers[%d]", path, i)
		r.check(k, at)
		if slices.Contains(names, r.Label()) {
			k.bad(at, fmt.Sprintf("there are two receivers %q", r.Label()), "give each a name:")
		}
		names = append(names, r.Label())
	}
}

// maxReceiverName bounds the name of a receiver, which is part of a record's key.
const maxReceiverName = 64

func (r *Receiver) check(k *checker, path string) {
	kind := r.Kind()
	if kind == "" {
		k.bad(path, "a receiver has exactly one of webhook, slack, alertmanager and email", "write slack: \"env:SLACK_URL\"")
		return
	}
	if len(r.Name) > maxReceiverName || strings.ContainsFunc(r.Name, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' }) {
		k.bad(path+".name", "this is not a name", fmt.Sprintf("use at most %d printable ASCII characters, without spaces and /", maxReceiverName))
	}
	mails := map[string]bool{"from": r.From != "", "smtp": r.SMTP != "", "password": !r.Password.IsZero()}
	for _, key := range []string{"from", "smtp"} {
		if kind == ReceiverEmail && !mails[key] {
			k.bad(path+".email", "an e-mail needs "+key, "add from: redrive@example.com and smtp: smtp://user@mail.example.com:587")
		}
	}
	if kind == ReceiverEmail {
		r.checkMail(k, path)
	} else {
		for _, key := range []string{"from", "smtp", "password"} {
			if mails[key] {
				k.bad(path+"."+key, key+" belongs to email", "remove it")
			}
		}
		checkSecretURL(k, path+"."+kind, r.URL())
	}
	if !r.Secret.IsZero() && kind != ReceiverWebhook {
		k.bad(path+".secret", "only what goes to webhook is signed", "remove it")
	}
	if len(r.Headers) > 0 && kind == ReceiverEmail {
		k.bad(path+".headers", "headers are those of a request", "remove them")
	}
	checkSecret(k, path+".secret", r.Secret)
	checkHeaders(k, path+".headers", r.Headers)
	checkCIDRs(k, path+".allow_cidrs", r.AllowCIDRs)
}

func (r *Receiver) checkMail(k *checker, path string) {
	for i, a := range r.Email {
		checkMailbox(k, fmt.Sprintf("%s.email[%d]", path, i), a)
	}
	if r.From != "" {
		checkMailbox(k, path+".from", r.From)
	}
	if r.SMTP == "" {
		return
	}
	u, err := url.Parse(r.SMTP)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		k.bad(path+".smtp", "this is not the address of a mail server", "write smtp://user@host:587 or smtps://user@host:465")
		return
	}
	if _, there := u.User.Password(); there {
		k.bad(path+".smtp", "the address holds a password, which would be shown", "write password: env:NAME")
	}
	if (u.User.Username() == "") != r.Password.IsZero() {
		k.bad(path+".smtp", "a user and a password belong together", "write smtp://user@host:587 and password: env:NAME, or neither")
	}
}

func checkMailbox(k *checker, path, address string) {
	a, err := mail.ParseAddress(address)
	if err != nil || a.Address == "" {
		k.bad(path, fmt.Sprintf("%q is not an e-mail address", address), "write name@example.com")
	}
}

// checkSecretURL checks a URL that may itself be a secret. What a reference leads to is looked
// at when it is used.
func checkSecretURL(k *checker, path string, s Secret) {
	if s.IsZero() || s.IsReference() {
		return
	}
	if what, hint := checkURL(s.Reference()); what != "" {
		k.bad(path, strings.ReplaceAll(what, fmt.Sprintf("%q", s.Reference()), "this"), hint)
	}
}

func checkCIDRs(k *checker, path string, networks []string) {
	for i, text := range networks {
		if _, err := netip.ParsePrefix(text); err != nil {
			k.bad(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%q is not a network", text), "write it as 10.1.0.0/16 or fd00::/8")
		}
	}
}

func checkPublicURL(k *checker, text string) {
	if text == "" {
		return
	}
	if what, hint := checkURL(text); what != "" {
		k.bad("public_url", what, hint)
	} else if strings.Contains(text, "?") {
		k.bad("public_url", "paths are added to it, and it has a query", "write https://host or https://host/path")
	}
}
