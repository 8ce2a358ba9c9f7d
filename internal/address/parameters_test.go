package address

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

func TestParameters(t *testing.T) {
	var name, how string
	var on bool
	var n int
	var wait time.Duration
	known := map[string]Parameter{"name": Text(&name), "how": OneOf(&how, "a", "b"), "on": Switch(&on), "n": Number(&n, 1, 9), "wait": Duration(&wait, time.Second)}
	q, _ := url.ParseQuery("name=x&how=b&on=true&n=9&wait=2s")
	if err := Parameters(q, known); err != nil || name != "x" || how != "b" || !on || n != 9 || wait != 2*time.Second {
		t.Errorf("%v: %q %q %t %d %s", err, name, how, on, n, wait)
	}
	for _, wrong := range []string{"name=", "how=hunter2", "on=hunter2", "n=0", "n=10", "n=hunter2", "wait=1ms", "wait=hunter2"} {
		q, _ := url.ParseQuery(wrong)
		if err := Parameters(q, known); !errors.Is(err, redrive.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if err := Parameters(url.Values{"other": {"1"}}, known); !errors.Is(err, redrive.ErrInvalid) || !strings.Contains(err.Error(), "how, n, name, on, wait") {
		t.Error(err)
	}
}
