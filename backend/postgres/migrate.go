package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/redrive/redrive/internal/sqlstore"
)

// SchemaVersion is the version of the tables that this program works with.
const SchemaVersion = 2

// lockClass is the first part of our advisory locks, so that they do not meet those of
// other programs.
const lockClass = 0x52647276 // "Rdrv"

// Migrate brings the tables up to [SchemaVersion]. Several processes may call it at
// once: one migrates, the others wait for it. Every migration is one transaction.
func (s *Store) Migrate(ctx context.Context) error { return s.base.Migrate(ctx, SchemaVersion, true) }

// MigrateDown removes the tables with everything in them. It is for tests and for
// those who leave.
func (s *Store) MigrateDown(ctx context.Context) error { return dialect{s}.MigrateTo(ctx, 0) }

// MigrateTo implements sqlstore.Server.
func (d dialect) MigrateTo(ctx context.Context, version int) error {
	for {
		done := false
		err := d.inTx(ctx, "migrate", func(tx db) error {
			// The lock ends with the transaction, so that no session must be kept.
			if _, err := tx.exec(ctx, "SELECT pg_advisory_xact_lock($1, $2)", int32(lockClass), lockKey(d.sql.schema)); err != nil {
				return err
			}
			have, err := d.versionOf(ctx, tx)
			if err != nil {
				return err
			}
			if have == version {
				done = true
				return nil
			}
			return d.step(ctx, tx, have, version)
		})
		if err != nil {
			return openError(err, "let an owner of the database run it, or its output of `redrive migrate --print`")
		}
		if done {
			return nil
		}
	}
}

// step carries out one migration.
func (s *Store) step(ctx context.Context, tx db, have, want int) error {
	if have < want {
		if have == 0 {
			// Asking first spares users who may not create schemas an error where it is there.
			there := false
			err := tx.query(ctx, "SELECT 1 FROM pg_namespace WHERE nspname = $1", func(row) error { there = true; return nil }, s.sql.schema)
			if err != nil {
				return err
			}
			if !there {
				if _, err := tx.exec(ctx, "CREATE SCHEMA "+pgx.Identifier{s.sql.schema}.Sanitize()); err != nil {
					return err
				}
			}
		}
		return runScript(ctx, tx, s.sql.Migration(have+1, true))
	}
	return runScript(ctx, tx, s.sql.Migration(have, false))
}

// runScript carries out a file of statements.
func runScript(ctx context.Context, tx db, script string) error {
	_, err := tx.(pgxDB).q.Exec(ctx, script, pgx.QueryExecModeSimpleProtocol)
	return err
}

func lockKey(schema string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(schema))
	return int32(h.Sum32()) //nolint:gosec // any number does
}

// Version implements sqlstore.Server.
func (d dialect) Version(ctx context.Context) (int, error) {
	return d.versionOf(ctx, pgxDB{d.pool})
}

func (s *Store) versionOf(ctx context.Context, q db) (version int, err error) {
	var layout *bool // whether the column is there; nil: nor is the table
	err = q.query(ctx, `SELECT bool_or(a.attname = 'layout') FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'migration'`, func(r row) error { return r.Scan(&layout) }, s.sql.schema)
	if err != nil || layout == nil {
		return 0, err
	}
	if !*layout {
		return 0, s.base.CheckLayout(1)
	}
	made := sqlstore.Layout // of tables that are gone
	err = q.query(ctx, "SELECT version, layout FROM "+pgx.Identifier{s.sql.schema, "migration"}.Sanitize()+" ORDER BY version DESC LIMIT 1",
		func(r row) error { return r.Scan(&version, &made) })
	if err != nil || version > SchemaVersion {
		return version, err
	}
	return version, s.base.CheckLayout(made)
}

// Inspect returns the schema that a URL names and the version of the tables there, 0 if
// there are none. It changes nothing and needs no tables.
func Inspect(ctx context.Context, url string, opts ...Option) (schema string, version int, err error) {
	s, cfg, err := configure(url, opts)
	if err != nil {
		return "", 0, err
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return "", 0, openError(err, "is the server running, and may this user log in?")
	}
	defer closeConn(conn)
	if version, err = s.versionOf(ctx, pgxDB{conn}); err != nil {
		return "", 0, openError(err, "")
	}
	return s.sql.schema, version, nil
}

// MigrationSQL returns the SQL that brings the tables of a schema ("": "redrive") from
// one version to another, for those who do not let programs change tables. From
// version 0 to [SchemaVersion] it makes everything.
func MigrationSQL(schema string, from, to int) string {
	if schema == "" {
		schema = defaultSchema
	}
	sql := newStatements(schema)
	var b strings.Builder
	b.WriteString("BEGIN;\n")
	if from == 0 && to > 0 {
		fmt.Fprintf(&b, "CREATE SCHEMA IF NOT EXISTS %s;\n", pgx.Identifier{schema}.Sanitize())
	}
	b.WriteString(sql.Migrations(from, to))
	b.WriteString("COMMIT;\n")
	return b.String()
}

// Rights returns the SQL that lets a database user work with the tables of a schema
// ("": "redrive") without owning them.
func Rights(schema, user string) string {
	if schema == "" {
		schema = defaultSchema
	}
	in, to := pgx.Identifier{schema}.Sanitize(), pgx.Identifier{user}.Sanitize()
	return fmt.Sprintf(`GRANT USAGE ON SCHEMA %[1]s TO %[2]s;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s;
GRANT EXECUTE ON FUNCTION %[1]s.as_json(bytea) TO %[2]s;
`, in, to)
}
