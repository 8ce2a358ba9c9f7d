package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/redrive/redrive/internal/sqlstore"
)

const urlHint = "write it as mysql://USER:PASSWORD@HOST:3306/DATABASE" //nolint:gosec // nobody's

// target is where a store connects to.
type target struct {
	config *mysql.Config
	conns  int
}

// parseURL reads a store's URL. Its errors do not show the password.
func parseURL(text string) (*target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return nil, errors.New("this is no URL of a MySQL database")
	}
	if len(u.Path) < 2 {
		return nil, errors.New("the URL names no database")
	}
	t := &target{conns: DefaultConns}
	q := u.Query()
	if v := q.Get("pool_max_conns"); v != "" {
		if t.conns, err = strconv.Atoi(v); err != nil || t.conns < 2 {
			return nil, fmt.Errorf("pool_max_conns is %q: at least 2", v)
		}
	}
	socket := q.Get("socket")
	q.Del("pool_max_conns")
	q.Del("socket")
	if t.config, err = mysql.ParseDSN("/?" + q.Encode()); err != nil {
		return nil, fmt.Errorf("the URL's parameters: %w", err)
	}
	c := t.config
	for name := range c.Params { // what is unknown goes to the server as a setting
		if sqlstore.Misspelt(name) {
			return nil, fmt.Errorf("parameter %s is not known", name)
		}
	}
	c.User, c.DBName = u.User.Username(), u.Path[1:]
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", u.Host
	switch {
	case socket != "":
		c.Net, c.Addr = "unix", socket
	case u.Hostname() == "":
		return nil, errors.New("the URL names no host")
	case u.Port() == "":
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	// What the statements of this package rely on.
	c.MultiStatements, c.InterpolateParams, c.ClientFoundRows = true, true, true
	c.Logger = &mysql.NopLogger{}
	return t, nil
}

// sessionSettings are made once a connection: nothing later depends on what the server
// or the user has as a default. Strict mode makes errors of values that do not fit; a
// lock that is held for long is given up before the caller's patience ends.
const sessionSettings = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;" +
	"SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', innodb_lock_wait_timeout = 5"

// connector opens connections with our settings.
type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{driverConn: conn.(driverConn), prepared: make(map[string]driver.Stmt)}
	if _, err := s.ExecContext(ctx, sessionSettings, nil); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("settings of the session: %w", err)
	}
	return s, nil
}

func openPool(c *mysql.Config, conns int) (*sql.DB, error) {
	inner, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector{inner})
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool, nil
}

// greet makes the pool, after a first connection that asks the server what it is.
func (s *Store) greet(ctx context.Context, t *target) error {
	first, err := openPool(t.config, 1)
	if err != nil {
		return openError(err, urlHint)
	}
	defer func() { _ = first.Close() }()
	var version string
	var readOnly bool
	err = first.QueryRowContext(ctx, "SELECT version(), @@max_allowed_packet, @@global.read_only").Scan(&version, &s.packet, &readOnly)
	if err != nil {
		return openError(err, "is the server running, is the database there, and may this user log in?")
	}
	if s.maria, err = checkVersion(version); err != nil {
		return openError(err, "use MySQL 8.0 or MariaDB 10.6, or later")
	}
	if readOnly {
		return openError(errors.New("the server is read-only"), "name the primary")
	}
	t.config.MaxAllowedPacket = s.packet
	if s.pool, err = openPool(t.config, t.conns); err != nil {
		return openError(err, urlHint)
	}
	return nil
}

var versionNumbers = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)`)
var mariaName = regexp.MustCompile(`(?i)maria`)

// checkVersion refuses servers that cannot skip locked rows.
func checkVersion(version string) (maria bool, err error) {
	maria = mariaName.MatchString(version)
	m := versionNumbers.FindStringSubmatch(version)
	if m == nil {
		return maria, fmt.Errorf("the server's version is %q", version)
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	patch, _ := strconv.Atoi(m[3])
	old := major < 8 || major == 8 && minor == 0 && patch < 11
	if maria {
		old = major < 10 || major == 10 && minor < 6
	}
	if old {
		return maria, fmt.Errorf("the server's version is %s, which cannot skip locked rows", version)
	}
	return maria, nil
}
