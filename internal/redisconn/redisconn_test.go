package redisconn

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m.Run)) }

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		url, addrs, user, password, master string
		db                                 int
		tls, cluster                       bool
	}{
		{url: "redis://localhost", addrs: "localhost:6379"},
		{url: "rediss://u:p%40ss@h:1/3?prefix=a:b", addrs: "h:1", user: "u", password: "p@ss", db: 3, tls: true},
		{url: "redis+sentinel://:secret@a,b:2/main/1", addrs: "a:26379,b:2", password: "secret", master: "main", db: 1},
		{url: "rediss+cluster://a:1,[::1]:2", addrs: "a:1,[::1]:2", cluster: true, tls: true},
		{url: "unix:///run/redis.sock?db=2", addrs: "/run/redis.sock", db: 2},
	} {
		c, err := Parse(tc.url)
		if err != nil {
			t.Errorf("%s: %v", tc.url, err)
			continue
		}
		o := &c.Options
		if got := strings.Join(o.Addrs, ","); got != tc.addrs || o.Username != tc.user || o.Password != tc.password ||
			o.MasterName != tc.master || o.DB != tc.db || (o.TLSConfig != nil) != tc.tls || o.IsClusterMode != tc.cluster {
			t.Errorf("%s: read as %s %+v", tc.url, got, o)
		}
	}
}

func TestParseRefusesAndKeepsSecrets(t *testing.T) {
	for _, url := range []string{
		"", "localhost:6379", "http://u:hidden@h", "redis://u:hidden@a,b", "redis://u:hidden@", "redis://u:hidden@h/x", "redis://u:hidden@h/0/1",
		"redis+sentinel://u:hidden@h", "redis+cluster://u:hidden@a:1,b:1/2", "redis://u:hidden@h?nonsense=1", "redis://u:hidden@h?prefix={a}",
		"redis://u:hidden@h?durability=forever", "redis://u:hidden@h?tls_ca=x", "redis://u:hid%zzden@h", "redis://u:hidden@h?replicas=0", "redis://u:hidden@a,,b",
	} {
		_, err := Parse(url)
		if !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%s: %v, want an invalid URL", url, err)
		} else if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "hid%zzden") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func dial(t *testing.T, url string) *Conn {
	t.Helper()
	c, err := Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

var counting = NewScript("counting", true, `return redis.call("INCRBY", KEYS[1], ARGV[1])`)

func TestScriptHealsItself(t *testing.T) {
	conn := dial(t, redistest.Shared(t).URL())
	key := redistest.Prefix()
	for want := int64(1); want < 4; want++ {
		if v, err := conn.Write(t.Context(), counting, []string{key}, 1); err != nil || v != want {
			t.Fatalf("%v %v, want %d", v, err, want)
		}
		if err := conn.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTLSAndUser(t *testing.T) {
	s := redistest.Start(t, redistest.Options{TLS: true, Config: []string{"user worker on >secret ~redrive* +@all", "user default off"}})
	url := strings.Replace(s.URL(), "rediss://", "rediss://worker:secret@", 1)
	conn := dial(t, url)
	if _, err := conn.Write(t.Context(), counting, []string{"redrive:{q}:n"}, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(t.Context(), counting, []string{"other"}, 1); err == nil {
		t.Fatal("the user may write keys of others")
	}
	c, err := Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), c); err == nil {
		t.Fatal("it connects without a password")
	}
}

func TestReplicatedWaitsOnItsOwnConnection(t *testing.T) {
	p := redistest.StartPair(t, redistest.Options{})
	conn := dial(t, p.URL()+"?durability=replicated&wait_timeout=1m")
	if _, err := conn.Write(t.Context(), counting, []string{"n"}, 1); err != nil {
		t.Fatal(err)
	}
	if v := p.Replica.Client(t).Get(t.Context(), "n").Val(); v != "1" {
		t.Fatalf("the replica has %q", v)
	}
	p.Sentinel.Kill() // so that nothing fails over
	p.Replica.Kill()
	conn = dial(t, p.Master.URL()+"?durability=replicated&wait_timeout=50ms")
	if _, err := conn.Write(t.Context(), counting, []string{"n"}, 1); !errors.Is(err, redrive.ErrUnknown) {
		t.Fatalf("without a replica: %v, want unknown", err)
	}
	if level := worst(conn.Probe(t.Context())); level != driver.LevelRefused {
		t.Fatalf("probe says %s, want refused", level)
	}
}

func TestFaults(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Config: []string{"maxmemory 3mb"}})
	conn := dial(t, s.URL())
	big := NewScript("big", false, `return redis.call("APPEND", KEYS[1], ARGV[1])`)
	var err error
	for range 100 {
		if _, err = conn.Write(t.Context(), big, []string{"k"}, strings.Repeat("x", 100_000)); err != nil {
			break
		}
	}
	if !errors.Is(err, redrive.ErrFull) {
		t.Fatalf("a full server: %v", err)
	}
	if _, err := conn.Write(t.Context(), counting, []string{"n"}, 1); conn.Version.AtLeast(7, 0) && err != nil {
		t.Fatalf("a script that may run on a full server: %v", err)
	}
	s.Kill()
	if _, err = conn.Write(t.Context(), counting, []string{"n"}, 1); err == nil {
		t.Fatal("no error from a server that is gone")
	}
	_ = conn.Close()
	if _, err = conn.Write(t.Context(), counting, []string{"n"}, 1); !errors.Is(err, redrive.ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
}

func worst(findings []driver.Finding) (level driver.Level) {
	for _, v := range findings {
		level = max(level, v.Level)
	}
	return level
}

func TestProbeJudges(t *testing.T) {
	for _, tc := range []struct {
		config     map[string]string
		durability Durability
		want       driver.Level
	}{
		{map[string]string{"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always"}, Any, driver.LevelOK},
		{map[string]string{"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"}, AOF, driver.LevelWarn},
		{map[string]string{"maxmemory-policy": "noeviction", "appendonly": "no", "save": "3600 1"}, Any, driver.LevelWarn},
		{map[string]string{"maxmemory-policy": "noeviction", "appendonly": "no"}, AOF, driver.LevelRefused},
		{map[string]string{"maxmemory-policy": "allkeys-lru", "maxmemory": "1000000", "appendonly": "yes", "appendfsync": "always"}, Any, driver.LevelRefused},
		{map[string]string{"maxmemory-policy": "allkeys-lru", "maxmemory": "0", "appendonly": "yes", "appendfsync": "always"}, Any, driver.LevelWarn},
		{map[string]string{"maxmemory-policy": "volatile-lru", "maxmemory": "1", "appendonly": "yes", "appendfsync": "always"}, Any, driver.LevelWarn},
		{map[string]string{}, Any, driver.LevelWarn},
	} {
		s := &settings{version: "7.0.15", role: "master", config: tc.config}
		if got := worst(s.judge(&Config{Durability: tc.durability, Replicas: 1})); got != tc.want {
			t.Errorf("%v at %d: %s, want %s", tc.config, tc.durability, got, tc.want)
		}
	}
	if level := worst(dial(t, redistest.Shared(t).URL()).Probe(t.Context())); level != driver.LevelWarn {
		t.Errorf("the shared server: %s", level)
	}
}

func TestOldServerIsRefused(t *testing.T) {
	if _, err := parseVersion("redis_version:6.0.16\r\n"); !errors.Is(err, redrive.ErrUnsupported) {
		t.Fatal(err)
	}
	if v, err := parseVersion("redis_version:7.2.4\r\n"); err != nil || !v.AtLeast(7, 0) || v.AtLeast(7, 4) {
		t.Fatal(v, err)
	}
	if field("a:1\r\nb:2\r\n", "b") != "2" {
		t.Fatal("field")
	}
}

// TestNewerCommands finds a newer command where the server knows it, and that a script
// learns it.
func TestNewerCommands(t *testing.T) {
	conn := dial(t, redistest.Shared(t).URL())
	err := conn.Do(t.Context(), "XACKDEL").Err() // without its arguments
	if known := err != nil && strings.Contains(err.Error(), "wrong number of arguments"); known != conn.Has["XACKDEL"] {
		t.Errorf("the server says %v, Has %v", err, conn.Has)
	}
	tells := NewScript("tells", false, "return XACKDEL and 'newer' or 'older'").Using("XACKDEL")
	for has, want := range map[bool]string{true: "newer", false: "older"} {
		if !conn.Version.AtLeast(7, 0) {
			want = "older" // and has none of them
		}
		conn.Has["XACKDEL"] = has
		if got, err := conn.Run(t.Context(), tells, []string{"k"}); err != nil || got != want {
			t.Errorf("has it %v: the script says %v, %v", has, got, err)
		}
	}
}
