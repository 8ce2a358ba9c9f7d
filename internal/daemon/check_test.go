package daemon_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
)

// Every configuration that the daemon does not start with is refused by the check, without a
// server, and so is one that could never deliver.
func TestCheckRefusesWhatServeRefuses(t *testing.T) {
	const q = "queues: {q: {deliver: {url: \"https://example.com\"}, source: \"%\"}}"
	source := func(address string) string { return strings.Replace(q, "%", address, 1) }
	deliver := func(what string) string { return "queues: {q: {deliver: {" + what + "}}}" }
	serves := map[string]string{ // what serve refuses at its start
		"number": deliver("url: \"http://0x7f000001\""), "short": deliver("url: \"http://127.1/x\""), "decimal": deliver("url: \"http://2130706433\""),
		"tls": "tls: {cert: /nowhere/c.pem, key: /nowhere/k.pem}", "tls half": "tls: {cert: /nowhere/c.pem}", "tls folder": "tls: {cert: /, key: /}",
		"store env": "store: env:REDRIVE_TEST_NOT_THERE", "store file": "store: file:/nowhere/at/all", "source env": source("env:REDRIVE_TEST_NOT_THERE"),
		"publish env": deliver("publish: env:REDRIVE_TEST_NOT_THERE, to: a"), "publish": deliver("publish: \"kafka://h:1/topic\", to: a"),
		"pg ours": "store: postgres://u@127.0.0.1:1/d?redrive_pol=1s,2s", "pg value": "store: postgres://u@127.0.0.1:1/d?redrive_ddl=maybe",
		"pg near": "store: postgres://u@127.0.0.1:1/d?redrve_ddl=on", "pg dash": "store: postgres://u@127.0.0.1:1/d?redrive-ddl=on", "pg bare": "store: postgres://u@127.0.0.1:1/d?schema=x",
		"pg pool": "store: postgres://u@127.0.0.1:1/d?pool_max_con=4", "pg sslmode": "store: postgres://u@127.0.0.1:1/d?sslmod=require", "pg value of sslmode": "store: postgres://u@127.0.0.1:1/d?sslmode=maybe",
		"mysql ours": "store: mysql://u@127.0.0.1:1/d?redrive_pol=1s", "mysql near": "store: mysql://u@127.0.0.1:1/d?redrive-poll=1s", "mysql pool": "store: mysql://u@127.0.0.1:1/d?pool_max_cons=4",
		"mysql name": "store: mysql://u@127.0.0.1:1/", "redis": "store: redis://127.0.0.1:1/0?prefx=a", "redis value": "store: redis://127.0.0.1:1/0?durability=much",
		"kafka": source("kafka://127.0.0.1:1/t?grup=a"), "kafka create": source("kafka://127.0.0.1:1/t?group=a&create=true"), "share": source("kafka://127.0.0.1:1/t?share=a&group=b"),
		"nats": source("nats://127.0.0.1:1/S?consumr=a"), "rabbit": source("rabbitmq://127.0.0.1:1/?queue=a&prefech=3"), "rabbit dead": source("rabbitmq://127.0.0.1:1/?queue=a&dead=b"),
		"list": source("redislist://127.0.0.1:1/0?prefx=a"), "list end": source("redislist://127.0.0.1:1/0?list=a&from=top"), "list and end": source("redislist://127.0.0.1:1/0?from=left"), "list prefix": source("redislist://127.0.0.1:1/0?list=a&prefix=b"),
		"list partitions": source("redislist://127.0.0.1:1/0?partitions=4"), "endpoint": "queues: {q: {guard: {}, deliver: {endpoints: [{name: a, url: \"http://127.1\"}]}}}",
	}
	later := map[string]string{ // what would fail with each delivery
		"loopback": deliver("url: \"http://127.0.0.1:8080\""), "localhost": deliver("url: \"http://localhost\""), "point": deliver("url: \"http://localhost./x\""),
		"six": deliver("url: \"http://[::1]\""), "mapped": deliver("url: \"http://[::ffff:10.0.0.1]\""), "private": deliver("url: \"http://10.0.0.1\""),
		"metadata": deliver("url: \"http://169.254.169.254\", allow_private: true"), "secret": deliver("url: \"https://example.com\", secret: env:REDRIVE_TEST_NOT_THERE"),
		"header": deliver("url: \"https://example.com\", headers: {a: env:REDRIVE_TEST_NOT_THERE}"),
	}
	check := func(text string) error {
		c, err := config.Parse("x", []byte(text))
		if err == nil {
			err = daemon.Check(t.Context(), c, false)
		}
		return err
	}
	for name, text := range serves {
		c, err := config.Parse("x", []byte(text))
		if err == nil {
			c.Listen = "127.0.0.1:0"
			if c.StoreDir() != "" {
				c.Store = config.Address("sqlite:" + t.TempDir())
			}
			_, err = daemon.New(c, daemon.Options{})
		}
		if err == nil {
			t.Errorf("%s: serve takes %s", name, text)
		}
		var list config.Errors
		if err := check(text); !errors.As(err, &list) || strings.Contains(err.Error(), "canceled") || strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %s: %v", name, text, err)
		}
	}
	for name, text := range later {
		if check(text) == nil {
			t.Errorf("%s: the check takes %s", name, text)
		}
	}
	for _, text := range []string{
		"{}", "store: postgres://u:p@db.example:5432/d?sslmode=disable&application_name=x&redrive_schema=a&pool_max_conns=4&statement_timeout=5s", "store: mysql://u@db.example/d?pool_max_conns=4&tls=true&redrive_prefix=a_&lock_wait_timeout=3",
		"store: redis+cluster://a:1,b:2?prefix=x", source("kafka://a:9092,b:9092/t?group=g"), source("nats://a:4222/S?consumer=c"), source("rabbitmq://u:p@a/v?queue=x"),
		deliver("url: \"http://127.0.0.1\", allow_private: true"), deliver("url: \"http://10.1.2.3\", allow_cidrs: [10.0.0.0/8]"), deliver("url: \"https://example.com\""),
	} {
		if err := check(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestCheckConnects(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := parse(t, "store: postgres://u@"+l.Addr().String()+"/d")
	if err := daemon.Check(t.Context(), c, true); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Check(t.Context(), c, true); err == nil || !strings.Contains(err.Error(), "no server answers") {
		t.Errorf("%v", err)
	}
}
