package redisconn

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive/driver"
)

// settings is what a server says of itself.
type settings struct {
	addr     string
	version  string
	role     string
	replicas int
	config   map[string]string // without an entry: the server does not tell
}

// Probe asks the server, or each master of a cluster, what its settings promise.
func (c *Conn) Probe(ctx context.Context) []driver.Finding {
	cluster, ok := c.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return c.findings(ctx, c.UniversalClient, "")
	}
	var mu sync.Mutex
	var all []driver.Finding
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		v := c.findings(ctx, node, node.Options().Addr+" ")
		mu.Lock()
		defer mu.Unlock()
		all = append(all, v...)
		return nil
	})
	if err != nil {
		all = append(all, unreachable(err))
	}
	return all
}

func unreachable(err error) driver.Finding {
	return driver.Finding{Level: driver.LevelRefused, Setting: "connection", Value: err.Error(), Promise: "the server cannot be asked", Hint: "is it running, and may the user run INFO?"}
}

func (c *Conn) findings(ctx context.Context, node redis.Cmdable, addr string) []driver.Finding {
	s, err := ask(ctx, node, addr)
	if err != nil {
		return []driver.Finding{unreachable(err)}
	}
	return s.judge(c.Config)
}

func ask(ctx context.Context, node redis.Cmdable, addr string) (*settings, error) {
	info, err := node.Info(ctx, "server", "replication", "memory", "persistence").Result()
	if err != nil { // before Redis 7 INFO takes one section
		if info, err = node.Info(ctx).Result(); err != nil {
			return nil, err
		}
	}
	s := &settings{addr: addr, version: field(info, "redis_version"), role: field(info, "role"), config: map[string]string{}}
	s.replicas, _ = strconv.Atoi(field(info, "connected_slaves"))
	// What a hosted server does not tell by CONFIG, INFO may.
	s.config["maxmemory-policy"] = field(info, "maxmemory_policy")
	s.config["maxmemory"] = field(info, "maxmemory")
	s.config["appendonly"] = map[string]string{"0": "no", "1": "yes"}[field(info, "aof_enabled")]
	for _, name := range []string{"maxmemory-policy", "maxmemory", "appendonly", "appendfsync", "save", "min-replicas-to-write", "no-appendfsync-on-rewrite"} {
		got, err := node.ConfigGet(ctx, name).Result()
		if v, ok := got[name]; err == nil && ok {
			s.config[name] = v
		}
	}
	return s, nil
}

// judge says what the settings promise, at the durability that is asked for.
func (s *settings) judge(c *Config) []driver.Finding {
	findings := []driver.Finding{
		{Level: driver.LevelOK, Setting: "redis_version", Value: s.version, Promise: "scripts, streams and sorted sets as needed (6.2 or newer)"},
	}
	if s.role == "slave" {
		findings = append(findings, driver.Finding{Level: driver.LevelRefused, Setting: "role", Value: "replica", Promise: "a replica takes no writes", Hint: "name the master, or use redis+sentinel://"})
	}
	findings = append(findings, s.eviction())
	findings = append(findings, s.persistence(c)...)
	if v, ok := s.replication(c); ok {
		findings = append(findings, v)
	}
	for i := range findings {
		findings[i].Setting = s.addr + findings[i].Setting
	}
	return findings
}

func (s *settings) eviction() driver.Finding {
	policy, limit := s.config["maxmemory-policy"], s.config["maxmemory"]
	v := driver.Finding{Setting: "maxmemory-policy", Value: policy, Hint: "CONFIG SET maxmemory-policy noeviction"}
	switch {
	case policy == "noeviction":
		v.Level, v.Promise, v.Hint = driver.LevelOK, "a full server refuses publishes; nothing is evicted", ""
	case policy == "":
		v.Level, v.Value, v.Promise, v.Hint = driver.LevelWarn, "unknown", "the server does not say whether it evicts keys", "make sure that it is noeviction"
	case strings.HasPrefix(policy, "volatile-"):
		v.Level, v.Promise = driver.LevelWarn, "keys with an expiry are evicted when the memory is full; ours have none, so a full server refuses publishes"
	case limit == "0":
		v.Level, v.Promise = driver.LevelWarn, "without maxmemory nothing is evicted; with one, whole queues may be"
	default:
		v.Level, v.Promise = driver.LevelRefused, "whole queues are evicted when the memory is full"
	}
	return v
}

func (s *settings) persistence(c *Config) []driver.Finding {
	switch s.config["appendonly"] {
	case "yes":
	case "":
		return []driver.Finding{{Level: driver.LevelWarn, Setting: "appendonly", Value: "unknown", Promise: "the server does not say what it keeps on disk", Hint: "make sure that appendonly is yes"}}
	default:
		return []driver.Finding{s.noFile(c)}
	}
	v := driver.Finding{Setting: "appendfsync", Value: s.config["appendfsync"], Hint: "CONFIG SET appendfsync always"}
	switch v.Value {
	case "always":
		v.Level, v.Promise, v.Hint = driver.LevelOK, "an acknowledgement survives kill -9 and loss of power", ""
	case "everysec":
		v.Level, v.Promise = driver.LevelWarn, "kill -9 loses nothing while the disk keeps up (else up to 2 s), loss of power the last 1 to 2 s of acknowledgements"
	case "":
		v.Level, v.Value, v.Promise, v.Hint = driver.LevelWarn, "unknown", "an append-only file is kept; the server does not say how often it is synced", "make sure that appendfsync is always"
	default:
		v.Level, v.Promise = driver.LevelWarn, "loss of power loses what the operating system has not written, up to 30 s or more"
	}
	findings := []driver.Finding{v}
	if s.config["no-appendfsync-on-rewrite"] == "yes" {
		findings = append(findings, driver.Finding{Level: driver.LevelWarn, Setting: "no-appendfsync-on-rewrite", Value: "yes", Promise: "nothing is synced while the append-only file is rewritten", Hint: "CONFIG SET no-appendfsync-on-rewrite no"})
	}
	return findings
}

// noFile is the finding about a server without an append-only file.
func (s *settings) noFile(c *Config) driver.Finding {
	v := driver.Finding{Level: driver.LevelWarn, Setting: "appendonly", Value: "no", Hint: "CONFIG SET appendonly yes, then CONFIG REWRITE"}
	switch {
	case s.config["save"] != "":
		v.Promise = "a crash of the server loses everything since its last snapshot (save " + s.config["save"] + ")"
	default:
		v.Promise = "a crash or restart of the server loses everything"
	}
	if c.Durability == AOF {
		v.Level = driver.LevelRefused
	}
	return v
}

func (s *settings) replication(c *Config) (driver.Finding, bool) {
	least := s.config["min-replicas-to-write"]
	if c.Durability != Replicated {
		if s.replicas == 0 {
			return driver.Finding{}, false
		}
		return driver.Finding{Level: driver.LevelWarn, Setting: "replicas", Value: strconv.Itoa(s.replicas),
			Promise: "a failover may lose the last acknowledgements, which replicas have not seen", Hint: "durability=replicated in the URL waits for them"}, true
	}
	if s.replicas < c.Replicas {
		return driver.Finding{Level: driver.LevelRefused, Setting: "replicas", Value: strconv.Itoa(s.replicas),
			Promise: fmt.Sprintf("durability=replicated needs %d", c.Replicas), Hint: "start the replicas, or ask for less"}, true
	}
	if n, _ := strconv.Atoi(least); n < 1 {
		return driver.Finding{Level: driver.LevelWarn, Setting: "min-replicas-to-write", Value: least,
			Promise: "an acknowledgement is on the replicas too, but a master cut off from them still takes writes that end as unknown", Hint: "CONFIG SET min-replicas-to-write " + strconv.Itoa(c.Replicas)}, true
	}
	return driver.Finding{Level: driver.LevelOK, Setting: "replicas", Value: strconv.Itoa(s.replicas),
		Promise: fmt.Sprintf("an acknowledgement is on %d replicas too", c.Replicas)}, true
}
