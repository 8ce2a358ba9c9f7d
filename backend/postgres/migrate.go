package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// SchemaVersion is the version of the tables that this program works with.
const SchemaVersion = 1

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
func (s dialect) MigrateTo(ctx context.Context, version int) error {
	for {
		done := false
		err := s.inTx(ctx, "migrate", func(tx db) error {
			// The lock ends with the transaction, so that no session must be kept.
			if _, err := tx.exec(ctx, "SELECT pg_advisory_xact_lock($1, $2)", int32(lockClass), lockKey(s.sql.schema)); err != nil {
				return err
			}
			have, err := versionOf(ctx, tx, s.sql.schema)
			if err != nil {
				return err
			}
			if have == version {
				done = true
				return nil
			}
			return s.step(ctx, tx, have, version)
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
func (s dialect) Version(ctx context.Context) (int, error) {
	return versionOf(ctx, pgxDB{s.pool}, s.sql.schema)
}

func versionOf(ctx context.Context, q db, schema string) (version int, err error) {
	there := false
	err = q.query(ctx, "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'migration'", func(row) error {
		there = true
		return nil
	}, schema)
	if err != nil || !there {
		return 0, err
	}
	table := pgx.Identifier{schema, "migration"}.Sanitize()
	err = q.query(ctx, "SELECT coalesce(max(version), 0) FROM "+table, func(r row) error { return r.Scan(&version) })
	return version, err
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
	if version, err = versionOf(ctx, pgxDB{conn}, s.sql.schema); err != nil {
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
