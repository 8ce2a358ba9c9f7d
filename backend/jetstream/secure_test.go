package jetstream

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/servertest"
)

// consumes has a source of an address publish, consume and read what is there.
func consumes(t *testing.T, addr, parameters string, client ...nats.Option) {
	t.Helper()
	scheme, host, _ := strings.Cut(addr, "://")
	js := natstest.Client(t, strings.Replace(scheme, "natss", "tls", 1)+"://"+host, client...)
	natstest.Stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	address := addr + "/S?" + parameters
	s := connect(t, address, Options{})
	brokertest.Publish(t, s, 3)
	claimN(t, s, 3)
	if all := read(t, address); len(all) != 3 {
		t.Errorf("%d of 3 were read", len(all))
	}
	conn, _, err := Dial(t.Context(), addr+"?"+parameters)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// refused checks that addresses are refused, and that the error shows nothing of a secret.
func refused(t *testing.T, secret string, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		_, err := Open(t.Context(), address, Options{})
		if err == nil || strings.Contains(err.Error(), secret) || errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := servertest.Certify(dir); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	s := natstest.Start(t, natstest.Options{Alter: func(o *server.Options) {
		config, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: file(servertest.CertFile), KeyFile: file(servertest.KeyFile), CaFile: file(servertest.AuthorityFile)})
		if err != nil {
			t.Fatal(err)
		}
		o.TLSConfig, o.TLSTimeout = config, 60
	}})
	ca := file(servertest.AuthorityFile)
	consumes(t, "natss://"+s.Addr(), "tls_ca="+ca, nats.RootCAs(ca))
	refused(t, dir+"-", "natss://"+s.Addr()+"/S", "natss://"+s.Addr()+"/S?tls_ca="+file("none.pem"),
		"natss://"+s.Addr()+"/S?tls_ca="+ca+"&tls_cert="+file(servertest.CertFile))
}

// seedFile writes the seed of a new user and returns its public key, too.
func seedFile(t *testing.T) (path, public, seed string) {
	t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	text, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if public, err = user.PublicKey(); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, public, string(text)
}

func TestNkey(t *testing.T) {
	t.Parallel()
	mine, public, seed := seedFile(t)
	other, _, _ := seedFile(t)
	s := natstest.Start(t, natstest.Options{Alter: func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }})
	own, err := nats.NkeyOptionFromSeed(mine)
	if err != nil {
		t.Fatal(err)
	}
	consumes(t, "nats://"+s.Addr(), "nkey="+mine, own)
	refused(t, seed, "nats://"+s.Addr()+"/S", "nats://"+s.Addr()+"/S?nkey="+other, "nats://"+s.Addr()+"/S?nkey="+mine+".none")
}

// TestCreds: a server that trusts an operator, whose account has a user with credentials.
func TestCreds(t *testing.T) {
	t.Parallel()
	pair := func(kp nkeys.KeyPair, err error) (nkeys.KeyPair, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		public, err := kp.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return kp, public
	}
	encoded := func(text string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	operator, operatorKey := pair(nkeys.CreateOperator())
	account, accountKey := pair(nkeys.CreateAccount())
	_, systemKey := pair(nkeys.CreateAccount())
	trusted := jwt.NewOperatorClaims(operatorKey)
	trusted.SystemAccount = systemKey
	claims := jwt.NewAccountClaims(accountKey)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	accounts := new(server.MemAccResolver)
	for key, text := range map[string]string{
		accountKey: encoded(claims.Encode(operator)), systemKey: encoded(jwt.NewAccountClaims(systemKey).Encode(operator)),
	} {
		if err := accounts.Store(key, text); err != nil {
			t.Fatal(err)
		}
	}
	creds := func(by nkeys.KeyPair) string {
		t.Helper()
		user, userKey := pair(nkeys.CreateUser())
		seed, err := user.Seed()
		if err != nil {
			t.Fatal(err)
		}
		text, err := jwt.FormatUserConfig(encoded(jwt.NewUserClaims(userKey).Encode(by)), seed)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "user.creds")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if _, err := trusted.Encode(operator); err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t, natstest.Options{Alter: func(o *server.Options) {
		o.TrustedOperators, o.SystemAccount, o.AccountResolver = []*jwt.OperatorClaims{trusted}, systemKey, accounts
	}})
	mine := creds(account)
	stranger, _ := pair(nkeys.CreateAccount())
	consumes(t, "nats://"+s.Addr(), "creds="+mine, nats.UserCredentials(mine))
	refused(t, "SU", "nats://"+s.Addr()+"/S", "nats://"+s.Addr()+"/S?creds="+creds(stranger), "nats://"+s.Addr()+"/S?creds="+mine+".none")
}
