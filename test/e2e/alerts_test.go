package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/internal/wire"
)

// ear takes what alerts are sent to.
type ear struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string][]heard // by path
}

type heard struct {
	header http.Header
	body   []byte
}

func newEar(t *testing.T) *ear {
	e := &ear{got: make(map[string][]heard)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if strings.HasPrefix(r.URL.Path, "/refuses") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"error":"schema_version is required","token":"of-a-customer"}`)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.got[r.URL.Path] = append(e.got[r.URL.Path], heard{r.Header, b})
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *ear) heard(path string) []heard {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]heard(nil), e.got[path]...)
}

// startAlertmanager starts a private Alertmanager, and returns its URL.
func startAlertmanager(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		servertest.Missing(t, "no Alertmanager: make deps (Debian: prometheus-alertmanager)")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "am.yml"), []byte("route: {receiver: none}\nreceivers: [{name: none}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freePort(t)
	p := servertest.New(servertest.Command{Name: "alertmanager", Dir: dir, Path: path, Patience: time.Minute,
		Args: []string{"--config.file=am.yml", "--storage.path=" + dir, "--web.listen-address=" + address, "--cluster.listen-address="}})
	if err := p.Start(func() bool { return servertest.Listens(address) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return "http://" + address
}

// mailServer is a server that takes mail from one user, over STARTTLS only, or over TLS from the start.
const mailServer = `
import ssl, sys, threading
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
scheme, port, cert, key, box, user, password = sys.argv[1:]
class Box:
    async def handle_DATA(self, server, session, envelope):
        with open(box, 'ab') as f:
            f.write(('from %s to %s\n' % (envelope.mail_from, ','.join(envelope.rcpt_tos))).encode() + envelope.content + b'\n--end--\n')
        return '250 taken'
def check(server, session, envelope, mechanism, data):
    return AuthResult(success=(data.login, data.password) == (user.encode(), password.encode()))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
tls = dict(ssl_context=context, auth_require_tls=False) if scheme == 'smtps' else dict(tls_context=context, require_starttls=True)
Controller(Box(), hostname='127.0.0.1', port=int(port), auth_required=True, authenticator=check, **tls).start()
threading.Event().wait()
`

// startMail starts a mail server, and returns its address, the file of its mails and that of the
// authority which its certificate is from.
func startMail(t *testing.T, scheme, user, password string) (address, box, authority string) {
	t.Helper()
	const python = "/usr/bin/python3" // which Debian's packages are for
	if exec.Command(python, "-c", "import aiosmtpd").Run() != nil {
		servertest.Missing(t, "no mail server: make deps (Debian: python3-aiosmtpd)")
	}
	dir := t.TempDir()
	if err := servertest.Certify(dir); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	address = freePort(t)
	_, port, _ := strings.Cut(address, ":")
	p := servertest.New(servertest.Command{Name: "mail", Dir: dir, Path: python, Patience: time.Minute,
		Args: []string{"-c", mailServer, scheme, port, at(servertest.CertFile), at(servertest.KeyFile), at("box"), user, password}})
	if err := p.Start(func() bool { return servertest.Listens(address) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return address, at("box"), at(servertest.AuthorityFile)
}

// A cause that begins to kill messages is a message to each receiver, on real servers: signed, escaped,
// over TLS, and without a secret or a value of a payload in it.
func TestAlertsReachEveryReceiver(t *testing.T) {
	t.Parallel()
	const password, hook, heart = "pass-of-the-mailbox", "slack-secret-path", "heartbeat-secret-path"
	signing := delivery.NewSecret()
	e, manager := newEar(t), startAlertmanager(t)
	address, box, authority := startMail(t, "smtp", "oncall", password)
	yaml := fmt.Sprintf(`
public_url: https://redrive.example.com
queues:
  orders: {deliver: {url: "%[1]s/refuses", allow_private: true}, policy: {max_attempts: 1}}
alerts:
  allow_private: true
  heartbeat: env:HEARTBEAT
  receivers:
    - {webhook: "%[1]s/webhook", secret: env:SIGNING, allow_private: true}
    - {slack: env:SLACK, allow_private: true}
    - {alertmanager: "%[2]s", allow_private: true}
    - {email: [oncall@example.com, second@example.com], from: redrive@example.com, smtp: "smtp://oncall@%[3]s", password: env:MAIL, allow_private: true}
    - {name: guarded, webhook: "%[1]s/guarded"}
`, e.URL, manager, address)
	env := []string{"SLACK=" + e.URL + "/" + hook, "HEARTBEAT=" + e.URL + "/" + heart, "SIGNING=" + signing, "MAIL=" + password, "SSL_CERT_FILE=" + authority}
	d := newDaemon(t, yaml, env...)

	tested := d.redrive("alerts", "--test").fails(t, 1, "guarded", "set allow_private: true")
	if n := strings.Count(tested.out, "taken"); n != 4 {
		t.Errorf("%d receivers took the test:\n%s", n, tested.out)
	}
	until(t, "the heart beats", time.Minute, func() bool { return len(e.heard("/"+heart)) > 0 })
	before := len(e.heard("/webhook"))

	d.publishMany("orders", "m", 20, func(i int) string { return fmt.Sprintf(`"body":{"n":%d}`, i) })
	until(t, "each receiver has it", 2*time.Minute, func() bool {
		mails, _ := os.ReadFile(box)
		return len(e.heard("/webhook")) > before && len(e.heard("/"+hook)) > 1 && strings.Contains(string(mails), "cause new") && len(managed(t, manager)) > 0
	})
	got := e.heard("/webhook")[before] // another may follow: when nothing but refusals is seen for a minute
	key, err := delivery.ParseSecret(signing)
	if err == nil {
		err = delivery.Verify([][]byte{key}, got.header, got.body, time.Now(), 0)
	}
	var m struct {
		Title  string
		Firing []wire.Alert
	}
	if err != nil || json.Unmarshal(got.body, &m) != nil || len(m.Firing) != 1 || m.Firing[0].Queue != "orders" || m.Firing[0].Numbers["dead"] == 0 ||
		!strings.HasPrefix(m.Firing[0].Next, "redrive dead triage ") || !strings.HasPrefix(m.Firing[0].Link, "https://redrive.example.com/ui/causes/") {
		t.Errorf("%v: %s", err, got.body)
	}
	if a := managed(t, manager)[0]; a.Labels["alertname"] != "redrive_cause_new" || a.Labels["queue"] != "orders" || !a.EndsAt.After(time.Now()) {
		t.Errorf("%+v", a)
	}
	mails, _ := os.ReadFile(box)
	if !strings.Contains(string(mails), "from redrive@example.com to oncall@example.com,second@example.com") {
		t.Errorf("%s", mails)
	}
	r := d.redrive("alerts").ok(t)
	for _, want := range []string{"cause_new", "cause/orders/", "redrive dead triage", "sent", "receiver/guarded"} {
		until(t, want, time.Minute, func() bool { r = d.redrive("alerts").ok(t); return strings.Contains(r.out, want) })
	}
	t.Log("\n" + r.out)
	d.redrive("doctor").fails(t, 1, "receiver guarded (", "redrive alerts --test")

	everything := r.out + tested.out + d.redrive("alerts", "--json").ok(t).out + d.redrive("config", "show").out + d.log.String() + string(got.body) + string(e.heard("/" + hook)[1].body) + string(mails)
	for _, secret := range []string{password, signing, hook, heart, "of-a-customer"} {
		if strings.Contains(everything, secret) {
			t.Errorf("%q shows", secret)
		}
	}
	causes := 0
	for _, h := range e.heard("/webhook")[before:] {
		causes += strings.Count(string(h.body), `"cause_new"`)
	}
	if causes != 1 || len(e.heard("/guarded")) > 0 {
		t.Errorf("%d messages of one cause, %d to an address that nothing allows", causes, len(e.heard("/guarded")))
	}
}

// Mail goes over TLS from the start to a server whose certificate is valid, and to no other.
func TestAlertsByMailOverTLS(t *testing.T) {
	t.Parallel()
	address, box, authority := startMail(t, "smtps", "oncall", "pass-of-the-mailbox")
	yaml := fmt.Sprintf("queues: {orders: {}}\nalerts: {receivers: [{email: [oncall@example.com], from: redrive@example.com, smtp: \"smtps://oncall@%s\", password: env:MAIL, allow_private: true}]}\n", address)
	d := newDaemon(t, yaml, "MAIL=pass-of-the-mailbox", "SSL_CERT_FILE="+authority)
	if r := d.redrive("alerts", "--test").ok(t); !strings.Contains(r.out, "taken") {
		t.Error(r.out)
	}
	mails, err := os.ReadFile(box)
	if err != nil || strings.Count(string(mails), "--end--") != 1 || !strings.Contains(string(mails), "nothing is wrong") {
		t.Errorf("%v %s", err, mails)
	}
	other := newDaemon(t, yaml, "MAIL=pass-of-the-mailbox") // which does not know the authority
	other.redrive("alerts", "--test").fails(t, 1, "certificate")
	if again, _ := os.ReadFile(box); len(again) != len(mails) {
		t.Error("a server that nobody vouches for got mail")
	}
}

// managed are the alerts that an Alertmanager has.
func managed(t *testing.T, url string) []struct {
	Labels map[string]string
	EndsAt time.Time
} {
	return get[[]struct {
		Labels map[string]string
		EndsAt time.Time
	}](t, url+"/api/v2/alerts")
}

// Of two daemons on one store one sends. It is killed, and the other goes on where it was.
func TestAnotherDaemonSendsAlerts(t *testing.T) {
	t.Parallel()
	s, e := pgtest.Start(t, nil), newEar(t)
	yaml := fmt.Sprintf("queues:\n  orders: {deliver: {url: \"%[1]s/refuses\", allow_private: true}, policy: {max_attempts: 1}}\n"+
		"alerts: {receivers: [{webhook: \"%[1]s/webhook\", allow_private: true}]}\n", e.URL)
	daemons := map[string]*daemon{}
	for range 2 {
		d := newDaemonOn(t, s.URL(), yaml)
		daemons[d.url] = d
	}
	some := slices.Collect(maps.Values(daemons))[0]
	some.publishMany("orders", "m", 5, func(i int) string { return fmt.Sprintf(`"body":%d`, i) })
	sentOf := func(subject string) (n int) {
		for _, h := range e.heard("/webhook") {
			n += strings.Count(string(h.body), `"subject":"`+subject+"/")
		}
		return n
	}
	until(t, "it is sent", 2*time.Minute, func() bool { return sentOf("cause") > 0 })
	alerts := func(d *daemon) wire.Alerts { return get[wire.Alerts](t, d.url+"/v1/alerts") }
	until(t, "that is written down", time.Minute, func() bool {
		a := alerts(some)
		return len(a.Items) == 1 && a.Items[0].SentAt != nil && a.Sender != ""
	})
	sender := alerts(some).Sender
	var other *daemon
	for _, d := range daemons {
		if me := get[wire.Me](t, d.url+"/v1/me"); me.Instance == sender {
			d.kill()
		} else {
			other = d
		}
	}
	other.redrive("dead", "redrive", "--queue", "orders", "--canary", "1", "--yes").ok(t)
	until(t, "the other one sends", 2*time.Minute, func() bool { return sentOf("plan") > 0 })
	if a := alerts(other); a.Sender == sender || len(a.Items) != 2 {
		t.Errorf("%+v", a)
	}
	if c, p := sentOf("cause"), sentOf("plan"); c != 1 || p != 1 {
		t.Errorf("%d messages about the cause, %d about the plan", c, p)
	}
}
