package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/redrive/redrive/internal/sqlstore"
)

// SchemaVersion is the version of the tables that this program works with.
const SchemaVersion = 2

// migrateWait is how long another process may migrate meanwhile, in seconds.
const migrateWait = 120

// Migrate brings the tables up to [SchemaVersion]. Several processes may call it at
// once: one migrates, the others wait for it. The server commits each change of a table
// by itself; a migration that was cut off is begun anew.
func (s *Store) Migrate(ctx context.Context) error { return s.base.Migrate(ctx, SchemaVersion, true) }

// MigrateDown removes the tables with everything in them. It is for tests and for
// those who leave.
func (s *Store) MigrateDown(ctx context.Context) error { return dialect{s}.MigrateTo(ctx, 0) }

// MigrateTo implements sqlstore.Server.
func (d dialect) MigrateTo(ctx context.Context, version int) error {
	c, err := d.pool.Conn(ctx)
	if err != nil {
		return openError(err, "")
	}
	defer func() { _ = c.Close() }()
	var locked sql.NullInt64
	if err := c.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", d.lockName(), migrateWait).Scan(&locked); err != nil {
		return openError(err, "")
	}
	if locked.Int64 != 1 {
		return openError(errors.New("another process is migrating the tables"), "wait for it, then start again")
	}
	defer func() {
		_, _ = c.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(?)", d.lockName())
	}()
	have, err := d.versionOn(ctx, c)
	for err == nil && have != version {
		if have < version {
			have++
			err = d.runScript(ctx, c, d.sql.Migration(have, true))
		} else {
			err = d.runScript(ctx, c, d.sql.Migration(have, false))
			have--
		}
	}
	if err != nil {
		return openError(err, "let somebody who may change tables run it, or the output of `redrive migrate --print`")
	}
	return nil
}

// lockName names the lock of the migrations of our tables: at most 64 characters, and
// for all databases of the server.
func (s *Store) lockName() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.database + "\x00" + s.sql.prefix))
	return fmt.Sprintf("redrive migrate %x", h.Sum64())
}

// runScript carries out a file of statements one by one.
func (s *Store) runScript(ctx context.Context, c *sql.Conn, script string) error {
	for _, statement := range statementsOf(script) {
		if _, err := c.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%w: %s", err, firstLine(statement))
		}
	}
	return nil
}

// statementsOf parts a script as the servers' clients do: a statement ends with a line that ends
// with ";", or with what the last line DELIMITER says.
func statementsOf(script string) []string {
	var list []string
	var part strings.Builder
	end := ";"
	for line := range strings.Lines(sqlstore.WithoutComments(script) + ";") {
		text := strings.TrimSpace(line)
		if sign, ok := strings.CutPrefix(text, "DELIMITER "); ok {
			end = sign
			continue
		}
		last, ended := strings.CutSuffix(text, end)
		if !ended {
			part.WriteString(line)
			continue
		}
		part.WriteString(last)
		list = append(list, part.String())
		part.Reset()
	}
	return list
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// Version implements sqlstore.Server.
func (d dialect) Version(ctx context.Context) (int, error) {
	c, err := d.pool.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	return d.versionOn(ctx, c)
}

func (s *Store) versionOn(ctx context.Context, c *sql.Conn) (version int, err error) {
	var tables, layouts int
	err = c.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(COLUMN_NAME = 'layout'), 0) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
		s.sql.prefix+"migration").Scan(&tables, &layouts)
	if err != nil || tables == 0 {
		return 0, err
	}
	if layouts == 0 {
		return 0, s.base.CheckLayout(1)
	}
	made := sqlstore.Layout // of tables that are gone
	err = c.QueryRowContext(ctx, s.sql.in("SELECT version, layout FROM redrive_migration ORDER BY version DESC LIMIT 1")).Scan(&version, &made)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil
	case err != nil || version > SchemaVersion:
		return version, err
	}
	return version, s.base.CheckLayout(made)
}

// Inspect returns the prefix that a URL names and the version of the tables there, 0 if
// there are none. It changes nothing and needs no tables.
func Inspect(ctx context.Context, url string, opts ...Option) (prefix string, version int, err error) {
	s, t, err := configure(url, opts)
	if err != nil {
		return "", 0, err
	}
	if err := s.greet(ctx, t); err != nil {
		return "", 0, err
	}
	defer func() { _ = s.pool.Close() }()
	if version, err = (dialect{s}).Version(ctx); err != nil {
		return "", 0, openError(err, "")
	}
	return s.sql.prefix, version, nil
}

// MigrationSQL returns the SQL that brings the tables of a prefix ("": "redrive_") from
// one version to another, for those who do not let programs change tables. From
// version 0 to [SchemaVersion] it makes everything. It is for the servers' own clients, mysql
// and mariadb: a line DELIMITER in it tells them how the statements end that hold others.
func MigrationSQL(prefix string, from, to int) string {
	if prefix == "" {
		prefix = defaultPrefix
	}
	return newStatements(prefix).Migrations(from, to)
}

// Rights returns the SQL that lets an account ("'worker'@'%'") work with the tables of a
// prefix ("": "redrive_") in a database without being allowed to change them.
func Rights(database, prefix, account string) string {
	if prefix == "" {
		prefix = defaultPrefix
	}
	var b strings.Builder
	for line := range strings.SplitSeq(newStatements(prefix).Migrations(SchemaVersion, 0), "\n") {
		name := strings.TrimSuffix(line[strings.LastIndexByte(line, ' ')+1:], ";")
		switch {
		case strings.HasPrefix(line, "DROP VIEW"), strings.HasSuffix(name, "migration"):
			fmt.Fprintf(&b, "GRANT SELECT ON `%s`.`%s` TO %s;\n", database, name, account)
		case strings.HasPrefix(line, "DROP TABLE"):
			fmt.Fprintf(&b, "GRANT SELECT, INSERT, UPDATE, DELETE ON `%s`.`%s` TO %s;\n", database, name, account)
		}
	}
	return b.String()
}
