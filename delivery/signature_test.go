package delivery

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

// The vector of the Standard Webhooks reference libraries.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestSignVector(t *testing.T) {
	key, err := ParseSecret(vectorSecret)
	if err != nil {
		t.Fatal(err)
	}
	if got := Sign(key, vectorID, time.Unix(vectorTime, 0), []byte(vectorBody)); got != vectorSignature {
		t.Errorf("got %s, want %s", got, vectorSignature)
	}
}

func TestVerify(t *testing.T) {
	key, _ := ParseSecret(vectorSecret)
	other, _ := ParseSecret(NewSecret())
	at := time.Unix(vectorTime, 0)
	for _, c := range []struct {
		name            string
		id, when, signs string
		body            string
		now             time.Time
		keys            [][]byte
		ok              bool
	}{
		{"the vector", vectorID, "1614265330", vectorSignature, vectorBody, at, [][]byte{key}, true},
		{"one of several keys", vectorID, "1614265330", vectorSignature, vectorBody, at, [][]byte{other, key}, true},
		{"one of several signatures", vectorID, "1614265330", "v1a,xyz v1,AAAA " + vectorSignature, vectorBody, at, [][]byte{key}, true},
		{"at the edge of the tolerance", vectorID, "1614265330", vectorSignature, vectorBody, at.Add(DefaultTolerance), [][]byte{key}, true},
		{"another key", vectorID, "1614265330", vectorSignature, vectorBody, at, [][]byte{other}, false},
		{"no key", vectorID, "1614265330", vectorSignature, vectorBody, at, nil, false},
		{"another body", vectorID, "1614265330", vectorSignature, vectorBody + " ", at, [][]byte{key}, false},
		{"another id", vectorID + "x", "1614265330", vectorSignature, vectorBody, at, [][]byte{key}, false},
		{"another time", vectorID, "1614265331", vectorSignature, vectorBody, at, [][]byte{key}, false},
		{"too old", vectorID, "1614265330", vectorSignature, vectorBody, at.Add(DefaultTolerance + time.Second), [][]byte{key}, false},
		{"too new", vectorID, "1614265330", vectorSignature, vectorBody, at.Add(-DefaultTolerance - time.Second), [][]byte{key}, false},
		{"no time", vectorID, "", vectorSignature, vectorBody, at, [][]byte{key}, false},
		{"no id", "", "1614265330", vectorSignature, vectorBody, at, [][]byte{key}, false},
		{"no signature", vectorID, "1614265330", "", vectorBody, at, [][]byte{key}, false},
		{"the wrong version", vectorID, "1614265330", "v2" + vectorSignature[2:], vectorBody, at, [][]byte{key}, false},
	} {
		h := http.Header{}
		h.Set("webhook-id", c.id)
		h.Set("webhook-timestamp", c.when)
		h.Set("webhook-signature", c.signs)
		err := Verify(c.keys, h, []byte(c.body), c.now, 0)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestParseSecret(t *testing.T) {
	encode := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, good := range []string{vectorSecret, NewSecret(), "whsec_" + encode(25), "whsec_" + strings.TrimRight(encode(25), "="), "whsec_" + encode(64)} {
		if _, err := ParseSecret(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "whsec_", "whsec_canary!", "canary" + encode(32), "whsec_" + encode(23), "whsec_" + encode(65), "whsk_" + encode(32)} {
		_, err := ParseSecret(bad)
		if !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%q: %v, want it refused", bad, err)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
	if one, other := NewSecret(), NewSecret(); one == other {
		t.Error("two new secrets are alike")
	}
}
