package mysql

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// packetWanted is what the largest body takes on its way.
const packetWanted = 2*redrive.MaxBodySize + 1<<20

// Probe implements driver.Source.
func (s *Store) Probe(ctx context.Context) []driver.Finding {
	values := make(map[string]string)
	var others []string
	err := s.read(ctx, "probe", nil, step{sql: s.sql.Get("probe"), scan: func(r row) error {
		var name, value string
		err := r.Scan(&name, &value)
		values[name] = value
		return err
	}}, step{sql: s.sql.Get("probe_tables"), args: []any{s.sql.prefix, s.sql.prefix}, scan: scanNames(&others)})
	if err != nil {
		return []driver.Finding{{Level: driver.LevelRefused, Setting: "store", Value: s.database,
			Promise: fmt.Sprintf("it cannot be read: %v", err), Hint: "is the server running, and may this user log in?"}}
	}
	var isolation string
	if c, err := s.pool.Conn(ctx); err == nil {
		variable := "@@transaction_isolation"
		if s.maria {
			variable = "@@tx_isolation"
		}
		_ = c.QueryRowContext(ctx, "SELECT "+variable).Scan(&isolation)
		_ = c.Close()
	}
	list := durability(values)
	return append(list, soundness(values, isolation, others)...)
}

// durability tells what the server's settings promise of what was acknowledged.
func durability(values map[string]string) []driver.Finding {
	ok := func(name, promise string) driver.Finding {
		return driver.Finding{Level: driver.LevelOK, Setting: name, Value: values[name], Promise: promise}
	}
	list := []driver.Finding{ok("version", "the server's version")}
	flush := ok("innodb_flush_log_at_trx_commit", "what was acknowledged survives a loss of power, if the disk keeps what it says it has written")
	switch flush.Value {
	case "1", "3":
	case "2":
		flush.Level, flush.Promise = driver.LevelWarn, "what was acknowledged in the last second is lost with the power, though not with the server's process"
	default:
		flush.Level, flush.Promise = driver.LevelWarn, "what was acknowledged in the last second is lost in a crash of the server"
	}
	if flush.Level != driver.LevelOK {
		flush.Hint = "set innodb_flush_log_at_trx_commit = 1"
	}
	list = append(list, flush)
	pages := ok("innodb_doublewrite", "pages survive a loss of power in the middle of a write")
	if v := pages.Value; v == "OFF" || v == "DETECT_ONLY" || v == "0" {
		pages.Level, pages.Promise = driver.LevelWarn, "a loss of power in the middle of a write may damage pages"
		pages.Hint = "set innodb_doublewrite = ON, unless the file system writes pages whole"
	}
	list = append(list, pages)
	binlog := ok("sync_binlog", "a fail-over may lose the last moments, unless the replicas are waited for")
	switch {
	case values["log_bin"] != "ON":
		binlog.Setting, binlog.Value, binlog.Promise = "log_bin", values["log_bin"], "there are no replicas to fail over to"
	case binlog.Value != "1":
		binlog.Level, binlog.Promise = driver.LevelWarn, "after a crash of the machine, replicas may miss what was acknowledged"
		binlog.Hint = "set sync_binlog = 1"
	}
	return append(list, binlog)
}

// soundness tells whether the store can work as it is meant to.
func soundness(values map[string]string, isolation string, others []string) []driver.Finding {
	engine := driver.Finding{Level: driver.LevelOK, Setting: "engine", Value: "InnoDB", Promise: "changes are transactions"}
	if len(others) > 0 {
		engine.Level, engine.Value, engine.Promise = driver.LevelRefused, others[0], "a table that is not kept by InnoDB loses messages"
		engine.Hint = "ALTER TABLE " + others[0] + " ENGINE = InnoDB"
	}
	level := driver.Finding{Level: driver.LevelOK, Setting: "isolation", Value: isolation, Promise: "concurrent claims do not disturb one another"}
	if isolation != "READ-COMMITTED" {
		level.Level, level.Promise = driver.LevelWarn, "claims lock gaps, so that others must be repeated"
		level.Hint = "let nothing between us and the server change the session's isolation"
	}
	packet := driver.Finding{Level: driver.LevelOK, Setting: "max_allowed_packet", Value: values["max_allowed_packet"], Promise: "the largest bodies pass"}
	if n, err := strconv.ParseInt(packet.Value, 10, 64); err == nil && n < packetWanted {
		packet.Level = driver.LevelWarn
		packet.Promise = fmt.Sprintf("messages larger than about %d MiB are refused", n>>20)
		packet.Hint = "set max_allowed_packet = 64M if there are such"
	}
	return []driver.Finding{engine, level, packet}
}
