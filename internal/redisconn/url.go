// Package redisconn is what the Redis backends share: reading the URL, connecting to
// a single server, a sentinel group or a cluster, running scripts, and the probe of
// what the server's settings promise.
package redisconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/address"
)

// Durability is what an acknowledgement is to survive.
type Durability uint8

// The levels of durability.
const (
	// Any takes what the server's settings give; Probe says what that is.
	Any Durability = iota
	// Memory: the server's memory is enough.
	Memory
	// AOF: the append-only file; Probe refuses a server without one.
	AOF
	// Replicated: also so many replicas (WAIT) before it is acknowledged.
	Replicated
)

// Config is a URL that was read.
type Config struct {
	Options    redis.UniversalOptions
	Prefix     string // of all keys; "redrive" by default
	Partitions int    // of each queue of a store on streams, experimental; 1 by default
	Durability Durability
	Replicas   int           // of Replicated
	Patience   time.Duration // how long Replicated waits for them
}

// MaxPartitions is the largest number of partitions.
const MaxPartitions = 64

// DefaultPrefix is the prefix of keys where the URL names none.
const DefaultPrefix = "redrive"

// Parse reads a URL:
//
//	redis://user:password@host:port/db          one server; rediss:// with TLS
//	redis+sentinel://host:port,host:port/name/db  the master that sentinels name
//	redis+cluster://host:port,host:port         a cluster; rediss+... with TLS
//	unix:///path?db=0                           a socket
//
// and the parameters prefix, partitions, durability (memory, aof or replicated), replicas,
// wait_timeout, pool_size, sentinel_user, sentinel_password, tls_ca, tls_cert,
// tls_key, tls_server_name. Its errors never show the URL, which may hold a password.
func Parse(raw string) (*Config, error) { return ParseWith(raw, nil) }

// ParseWith is Parse for a URL that may have more parameters.
func ParseWith(raw string, more map[string]address.Parameter) (*Config, error) {
	c := &Config{Prefix: DefaultPrefix, Partitions: 1, Replicas: 1, Patience: time.Second}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, invalid("the URL has no scheme", "write redis://host:6379/0")
	}
	// net/url refuses several hosts with ports: they are cut out first.
	hosts, rest := cutHosts(rest)
	u, err := url.Parse("redis://" + rest)
	if err != nil {
		return nil, invalid("the URL cannot be read", "escape special characters of user and password, as %40 for @")
	}
	o := &c.Options
	o.Protocol = 2
	o.MaxRetries = -1 // a script is repeated only when it is certain that it did not run
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	if scheme == "unix" {
		o.Addrs, path = []string{u.Path}, nil
	} else if o.Addrs, err = addresses(hosts, scheme); err != nil {
		return nil, err
	}
	if err := c.scheme(scheme, path); err != nil {
		return nil, err
	}
	if err := c.parameters(u.Query(), more); err != nil {
		return nil, err
	}
	return c, nil
}

// cutHosts takes the hosts out of user:password@hosts/path?query.
func cutHosts(rest string) (hosts, without string) {
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@') + 1
	if at == end {
		return "", rest
	}
	return rest[at:end], rest[:at] + "host" + rest[end:]
}

func addresses(hosts, scheme string) ([]string, error) {
	port := ":6379"
	if strings.Contains(scheme, "sentinel") {
		port = ":26379"
	}
	if hosts == "" {
		return nil, invalid("the URL names no host", "write redis://host:6379/0")
	}
	all := strings.Split(hosts, ",")
	for i, h := range all {
		if h == "" {
			return nil, invalid("the URL has an empty host", "write host:port,host:port")
		}
		if strings.LastIndexByte(h, ':') <= strings.LastIndexByte(h, ']') {
			all[i] = h + port
		}
	}
	return all, nil
}

func (c *Config) scheme(scheme string, path []string) error {
	o := &c.Options
	kind, secure := strings.CutPrefix(scheme, "rediss")
	if !secure {
		kind = strings.TrimPrefix(scheme, "redis")
	}
	if secure {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	switch {
	case scheme == "unix":
	case kind == "":
		if len(o.Addrs) > 1 {
			return invalid("several hosts", "write redis+cluster:// or redis+sentinel:// for more than one")
		}
	case kind == "+cluster":
		o.IsClusterMode = true
	case kind == "+sentinel":
		if len(path) == 0 || path[0] == "" {
			return invalid("no name of the master", "write redis+sentinel://host:26379/NAME/0")
		}
		o.MasterName, path = path[0], path[1:]
	default:
		return invalid("unknown scheme "+strconv.Quote(scheme), "use redis, rediss, redis+sentinel, redis+cluster or unix")
	}
	if len(path) == 0 || path[0] == "" {
		return nil
	}
	db, err := strconv.Atoi(path[0])
	if err != nil || db < 0 || len(path) > 1 || (o.IsClusterMode && db != 0) {
		return invalid("the path is not the number of a database", "end the URL with /0")
	}
	o.DB = db
	return nil
}

func (c *Config) parameters(q url.Values, more map[string]address.Parameter) error {
	o := &c.Options
	var files address.TLS
	known := map[string]address.Parameter{
		"prefix": func(v string) error {
			if c.Prefix = v; strings.ContainsAny(v, "{} *?[]\\/") {
				return errors.New("use letters, digits, : . _ -")
			}
			return nil
		},
		"partitions": address.Number(&c.Partitions, 1, MaxPartitions),
		"durability": func(v string) (err error) { c.Durability, err = parseDurability(v); return err },
		"replicas":   address.Number(&c.Replicas, 1, math.MaxInt32), "wait_timeout": address.Duration(&c.Patience, time.Millisecond),
		"pool_size": address.Number(&o.PoolSize, 0, math.MaxInt32), "db": address.Number(&o.DB, 0, math.MaxInt32),
		"sentinel_user": address.Text(&o.SentinelUsername), "sentinel_password": address.Text(&o.SentinelPassword),
		"tls_ca": address.Text(&files.CA), "tls_cert": address.Text(&files.Cert), "tls_key": address.Text(&files.Key), "tls_server_name": address.Text(&files.ServerName),
	}
	maps.Copy(known, more)
	if err := address.Parameters(q, known); err != nil {
		return &redrive.Error{Op: "open redis", Err: fmt.Errorf("URL: %w", err), Hint: "see docs/redis.md for the parameters there are"}
	}
	return c.secure(files)
}

func (c *Config) secure(files address.TLS) error {
	if files == (address.TLS{}) {
		return nil
	}
	t := c.Options.TLSConfig
	if t == nil {
		return invalid("tls_ parameters without TLS", "write rediss://")
	}
	return files.Apply(t)
}

func parseDurability(s string) (Durability, error) {
	switch s {
	case "memory":
		return Memory, nil
	case "aof":
		return AOF, nil
	case "replicated":
		return Replicated, nil
	}
	return 0, errors.New("unknown")
}

func invalid(what, hint string) error {
	return &redrive.Error{Op: "open redis", Err: fmt.Errorf("%w URL: %s", redrive.ErrInvalid, what), Hint: hint}
}
