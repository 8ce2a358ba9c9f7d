package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/redrive/redrive/backend/mysql"
	"github.com/redrive/redrive/backend/postgres"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
)

// migrateCmd brings the tables of a store on a database server up to this program.
type migrateCmd struct {
	Data  string `type:"store" default:"${data}" placeholder:"URL" help:"The store (default ./redrive-data)."`
	Down  bool   `help:"Remove the tables with everything in them."`
	Print bool   `help:"Only write the SQL, for somebody else to run."`
	From  int    `default:"-1" placeholder:"N" help:"With --print: the version of the tables, without asking the server; 0: there are none."`
	User  string `placeholder:"NAME" help:"With --print: also the rights of a user that works with the tables and does not own them (MySQL: NAME or NAME@HOST)."`
	Yes   bool   `short:"y" help:"Do not ask."`
}

func (*migrateCmd) Help() string {
	return examples(
		"redrive migrate --data postgres://owner@host/app", "make or migrate the tables, before daemons start with redrive_ddl=off",
		"redrive migrate --data mysql://root@host/app --print --from 0 --user worker", "the SQL for an administrator, for an empty database, with the rights of the daemon's user",
		"redrive migrate --data postgres://owner@host/app --down", "remove everything, after a confirmation",
	)
}

// tables is what a kind of database knows about its migrations.
type tables struct {
	kind    string // what a name stands for
	newest  int
	named   string // by the address; "": the default
	inspect func(ctx context.Context) (name string, version int, err error)
	sql     func(name string, from, to int) string
	rights  func(name string) (string, error)
	open    func(ctx context.Context) (migratingStore, error)
}

type migratingStore interface {
	driver.Store
	MigrateDown(ctx context.Context) error
}

// migration is the output, for --json.
type migration struct {
	Store string `json:"store"`
	Name  string `json:"name"` // schema or prefix
	From  int    `json:"from"`
	To    int    `json:"to"`
	SQL   string `json:"sql,omitempty"` // with --print
}

// Run migrates, or prints the SQL of it.
func (c *migrateCmd) Run(ctx context.Context, t *terminal) error {
	if !c.Print && (c.From >= 0 || c.User != "") {
		return usagef("--from and --user go with --print")
	}
	address := storeAddress(c.Data)
	text, err := address.Resolve()
	if err != nil {
		return err
	}
	of := c.tablesOf(text)
	if of == nil {
		return c.byItself(t, address)
	}
	m := migration{Store: address.String(), Name: of.named, From: c.From, To: of.newest}
	if c.From < 0 {
		if m.Name, m.From, err = of.inspect(ctx); err != nil {
			return err
		}
	}
	if m.From > of.newest {
		return fmt.Errorf("the tables are of version %d, newer than %d, which this program knows: use the newer program that migrated them", m.From, of.newest)
	}
	if c.Down {
		m.To = 0
	}
	if c.Print {
		return c.print(t, of, &m)
	}
	if m.From != m.To {
		if err := c.migrate(ctx, t, of, &m); err != nil {
			return err
		}
	}
	if t.json {
		return t.writeJSON(&m)
	}
	switch {
	case m.From == m.To && c.Down:
		t.printf("there are no tables to remove (%s %s)\n", of.kind, clean(m.Name))
	case m.From == m.To:
		t.printf("the tables are of version %d already (%s %s)\n", m.To, of.kind, clean(m.Name))
	case c.Down:
		t.printf("the tables are removed (%s %s)\n", of.kind, clean(m.Name))
	default:
		t.printf("migrated from version %d to %d (%s %s)\n", m.From, m.To, of.kind, clean(m.Name))
	}
	return nil
}

// byItself tells of stores that nobody needs to migrate.
func (c *migrateCmd) byItself(t *terminal, address config.Address) error {
	if c.Print || c.Down {
		return usagef("%s has no tables to print or to remove: it migrates by itself when it is opened", address)
	}
	if t.json {
		return t.writeJSON(map[string]any{"store": address.String(), "by_itself": true})
	}
	t.printf("%s migrates by itself when it is opened\n", clean(address.String()))
	return nil
}

// migrate changes the tables: a store migrates as it is opened.
func (c *migrateCmd) migrate(ctx context.Context, t *terminal, of *tables, m *migration) error {
	store, err := of.open(ctx)
	if err != nil {
		return err
	}
	if c.Down {
		err = c.remove(ctx, t, of, m, store)
	}
	return errors.Join(err, store.Close())
}

// remove asks before everything is gone.
func (c *migrateCmd) remove(ctx context.Context, t *terminal, of *tables, m *migration, store migratingStore) error {
	if !c.Yes {
		counts, err := store.Counts(ctx)
		if err != nil {
			return err
		}
		var n int64
		for i := range counts {
			n += counts[i].AllWaiting() + counts[i].AllDead()
		}
		what := fmt.Sprintf("the tables of %s %s with %s messages and dead letters", of.kind, clean(m.Name), grouped(n))
		if err := confirmTyped(t, "remove", n, what, clean(m.Store)); err != nil {
			return err
		}
	}
	return store.MigrateDown(ctx)
}

func (c *migrateCmd) print(t *terminal, of *tables, m *migration) error {
	var rights string
	if c.User != "" && !c.Down {
		var err error
		if rights, err = of.rights(m.Name); err != nil {
			return err
		}
	}
	if m.From != m.To {
		m.SQL = of.sql(m.Name, m.From, m.To)
	}
	m.SQL += rights
	if t.json {
		return t.writeJSON(m)
	}
	t.printf("-- Redrive's tables: from version %d to %d.\n%s", m.From, m.To, m.SQL)
	if c.User == "" && !c.Down {
		t.note("add --user NAME for the rights of a user that does not own the tables")
	}
	return nil
}

// tablesOf returns what the database at an address knows, nil if it is none with SQL.
func (c *migrateCmd) tablesOf(address string) *tables {
	address, parameters := withDDL(address)
	scheme, _, _ := strings.Cut(address, ":")
	switch scheme {
	case "postgres", "postgresql":
		return &tables{
			kind: "schema", newest: postgres.SchemaVersion, named: parameters.Get("redrive_schema"),
			inspect: func(ctx context.Context) (string, int, error) { return postgres.Inspect(ctx, address) },
			sql:     postgres.MigrationSQL,
			rights:  func(schema string) (string, error) { return postgres.Rights(schema, c.User), nil },
			open:    func(ctx context.Context) (migratingStore, error) { return opened(postgres.Open(ctx, address)) },
		}
	case "mysql", "mariadb":
		path, _, _ := strings.Cut(address, "?")
		database, err := url.PathUnescape(path[strings.LastIndexByte(path, '/')+1:])
		return &tables{
			kind: "prefix", newest: mysql.SchemaVersion, named: parameters.Get("redrive_prefix"),
			inspect: func(ctx context.Context) (string, int, error) { return mysql.Inspect(ctx, address) },
			sql:     mysql.MigrationSQL,
			rights: func(prefix string) (string, error) {
				account, bad := mysqlAccount(c.User)
				if err != nil || bad != nil || database == "" || strings.ContainsRune(database, '`') {
					return "", errors.Join(usagef("the rights need a database in --data and an account NAME or NAME@HOST"), bad)
				}
				return mysql.Rights(database, prefix, account), nil
			},
			open: func(ctx context.Context) (migratingStore, error) { return opened(mysql.Open(ctx, address)) },
		}
	}
	return nil
}

// opened keeps a nil pointer from becoming a store.
func opened[S migratingStore](s S, err error) (migratingStore, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// withDDL takes redrive_ddl out of an address: who runs this command wants the tables
// changed. It returns the other parameters too.
func withDDL(address string) (string, url.Values) {
	base, query, _ := strings.Cut(address, "?")
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool { return p == "" || strings.HasPrefix(p, "redrive_ddl=") })
	parameters, err := url.ParseQuery(strings.Join(kept, "&"))
	if err != nil { // the store's own reading tells of it
		parameters = nil
	}
	if len(kept) > 0 {
		base += "?" + strings.Join(kept, "&")
	}
	return base, parameters
}

// mysqlAccount writes an account as SQL wants it; without a host it is for all hosts.
func mysqlAccount(name string) (string, error) {
	user, host := name, "%"
	if at := strings.LastIndexByte(name, '@'); at >= 0 {
		user, host = name[:at], name[at+1:]
	}
	if user == "" || host == "" || strings.ContainsAny(name, "'\\`\"\n") {
		return "", usagef("%q is no account", name)
	}
	return fmt.Sprintf("'%s'@'%s'", user, host), nil
}
