package kafkatest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/servertest"
)

// Secured is where a broker is reached by those only who log in.
type Secured struct {
	Plain string // without TLS
	TLS   string
	CA    string // file of the authority that signed the broker's certificate

	// User may log in with Password, by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
	User, Password string
	// Reader has the same password, logs in by PLAIN, and may do only what it is allowed.
	Reader string
}

// securedSettings are those of the two listeners.
const securedSettings = `,SASL_PLAINTEXT://%[1]s,SASL_SSL://%[2]s
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location=%[3]s
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:%[4]s
`

const securedLogin = `listener.name.%[1]s.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_%[2]s="%[3]s" user_%[4]s="%[3]s";
listener.name.%[1]s.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.%[1]s.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
`

// StartSecured starts a broker as Start does, which has two listeners more.
func StartSecured(t testing.TB) (*Broker, *Secured) {
	t.Helper()
	s := &Secured{User: "redrive", Password: "not-a-secret", Reader: "reader"}
	return start(t, s, nil), s
}

// settings writes the certificate and returns what the broker's settings say besides.
func (s *Secured) settings(dir, plain, tls string) (string, error) {
	if err := servertest.Certify(dir); err != nil {
		return "", err
	}
	s.Plain, s.TLS, s.CA = plain, tls, filepath.Join(dir, servertest.AuthorityFile)
	var store []byte
	for _, name := range []string{servertest.KeyFile, servertest.CertFile} {
		text, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // of the test
		if err != nil {
			return "", err
		}
		store = append(store, text...)
	}
	keystore := filepath.Join(dir, "keystore.pem")
	if err := os.WriteFile(keystore, store, 0o600); err != nil { //nolint:gosec // of the test
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, securedSettings, plain, tls, keystore, s.User)
	for _, listener := range []string{"sasl_plaintext", "sasl_ssl"} {
		fmt.Fprintf(&text, securedLogin, listener, s.User, s.Password, s.Reader)
	}
	return text.String(), nil
}

// scram is the user as the storage receives it when it is made.
func (s *Secured) scram(mechanism string) string {
	return fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, s.User, s.Password)
}
