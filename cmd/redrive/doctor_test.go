package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// TestDoctorOfADaemon names what only a daemon knows: its version, tokens that nobody uses, and that
// nobody hears of alerts. What a token may not see is left out.
func TestDoctorOfADaemon(t *testing.T) {
	admin, adminID, adminHash := config.NewToken()
	reader, readerID, readerHash := config.NewToken()
	b := serving(t, fmt.Sprintf(`tokens:
  - {name: olga, id: %s, hash: "%s", scopes: [admin]}
  - {name: forgotten, id: %s, hash: "%s", scopes: [read]}
`, adminID, adminHash, readerID, readerHash))
	t.Setenv("REDRIVE_TOKEN", admin)
	out := b.expect(exitOK, "token forgotten: it was never used", "doctor")
	for _, want := range []string{"version: this command is " + version() + ", the daemon v0.0.9", "alerts: there is no receiver", "redrive alerts --test", "daemon: open files is "} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "token olga") {
		t.Errorf("who asks is named as unused:\n%s", out)
	}
	t.Setenv("REDRIVE_TOKEN", reader)
	if out := b.expect(exitOK, "it balances", "doctor"); strings.Contains(out, "token ") {
		t.Errorf("a reader sees tokens:\n%s", out)
	}
}

func TestDoctorComparesVersionsAndClocks(t *testing.T) {
	for want, me := range map[string]wire.Me{
		"ok v1, as the daemon":                                               {Version: "v1", Instances: []wire.Peer{{ID: "a", Version: "v1"}}},
		"warn this command is v1, the daemon v2":                             {Version: "v2", Instances: []wire.Peer{{ID: "a", Version: "v2"}}},
		"warn the daemon b on the same store is v2, the one that answers v1": {Version: "v1", Instances: []wire.Peer{{ID: "a", Version: "v1"}, {ID: "b", Version: "v2"}}},
	} {
		d := &doctor{me: me}
		d.versions("v1")
		if f := d.findings; f[0].Level+" "+f[0].Text != want || (f[0].Hint == "") != (f[0].Level == levelOK) {
			t.Errorf("%+v, want %s", f, want)
		}
	}
	for ahead, warned := range map[time.Duration]bool{-time.Hour: true, -time.Second: false, 7 * time.Second: false, 9 * time.Second: true} {
		d := &doctor{}
		d.clock(ahead, 3*time.Second)
		if (len(d.findings) == 1) != warned {
			t.Errorf("%s ahead: %+v", ahead, d.findings)
		}
	}
}

func TestDoctorNamesTokens(t *testing.T) {
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	at := func(days int) *time.Time { return new(now.AddDate(0, 0, days)) }
	for _, c := range []struct {
		token wire.Token
		says  []string
	}{
		{wire.Token{LastUsed: at(-1), Expires: at(60)}, nil},
		{wire.Token{LastUsed: at(-100)}, []string{"it was last used 100d"}},
		{wire.Token{Expires: at(3)}, []string{"it was never used", "it ends in 3d"}},
		{wire.Token{Expires: at(-3), Expired: true}, []string{"it ended 3d"}},
	} {
		d := &doctor{}
		d.token(&c.token, now)
		if !slices.EqualFunc(d.findings, c.says, func(f finding, says string) bool {
			return f.Level == levelWarn && f.Hint != "" && strings.HasPrefix(f.Text, says)
		}) {
			t.Errorf("%+v: %+v, want %q", c.token, d.findings, c.says)
		}
	}
}
