package alerts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/internal/daemon/config"
)

// mailer sends by SMTP. A password goes over TLS only.
type mailer struct {
	client   *mail.Client
	from     string
	boxes    []string
	password config.Secret
}

func newMailer(r *config.Receiver) (*mailer, error) {
	u, err := url.Parse(r.SMTP)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("%w address of a mail server", redrive.ErrInvalid)
	}
	target, err := targetOf("", r)
	if err != nil {
		return nil, err
	}
	dialer, err := delivery.Dialer(target, delivery.Options{})
	if err != nil {
		return nil, err
	}
	dial := dialer.DialContext
	if u.Scheme == "smtps" {
		dial = (&tls.Dialer{NetDialer: dialer, Config: &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}}).DialContext
	}
	options := []mail.Option{mail.WithTimeout(sendTimeout), mail.WithDialContextFunc(dial), mail.WithoutNoop()}
	switch {
	case u.Scheme == "smtps":
		options = append(options, mail.WithSSLPort(false))
	case u.User != nil:
		options = append(options, mail.WithTLSPortPolicy(mail.TLSMandatory))
	default:
		options = append(options, mail.WithTLSPortPolicy(mail.TLSOpportunistic))
	}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		options = append(options, mail.WithPort(port))
	}
	switch {
	case u.User == nil:
	case u.Scheme == "smtps": // the library does not see that a connection of ours has TLS from the start
		options = append(options, mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256PLUS, mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthCramMD5, mail.SMTPAuthPlain, mail.SMTPAuthLogin), mail.WithUsername(u.User.Username()))
	default:
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(u.User.Username()))
	}
	client, err := mail.NewClient(u.Hostname(), options...)
	if err != nil {
		return nil, err
	}
	return &mailer{client: client, from: r.From, boxes: r.Email, password: r.Password}, nil
}

func (m *mailer) to() string { return strings.Join(m.boxes, ", ") }

func (m *mailer) send(ctx context.Context, of *message) error {
	password := ""
	if !m.password.IsZero() {
		var err error
		if password, err = m.password.Resolve(); err != nil {
			return err
		}
		m.client.SetPassword(password)
	}
	msg := mail.NewMsg()
	if err := errors.Join(msg.From(m.from), msg.To(m.boxes...)); err != nil {
		return err
	}
	msg.Subject(of.title())
	msg.SetDateWithValue(of.at)
	msg.SetMessageIDWithValue(of.id + "@redrive")
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetBodyString(mail.TypeTextPlain, of.text(plainText)+"\n")
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if err := m.client.DialAndSendWithContext(ctx, msg); err != nil {
		return errors.New(hidden(err.Error(), password))
	}
	return nil
}

// hidden is a text without a secret that a server may have repeated.
func hidden(s, secret string) string {
	if secret != "" {
		s = strings.ReplaceAll(s, secret, "***")
	}
	return printable(s)
}
