package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/address"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/problem"
)

// remote says which daemon or store a command talks to.
type remote struct {
	Server string `env:"REDRIVE_SERVER" placeholder:"URL" help:"The daemon (default http://127.0.0.1:7333). https://HOST:7333?tls_ca=FILE trusts an authority of your own."`
	Data   string `type:"store" placeholder:"DIR" help:"The store itself, without a daemon's address: a folder (through the daemon's socket in it while one runs, else the file), or the address of a store on a server."`
	Token  string `env:"REDRIVE_TOKEN" placeholder:"TOKEN" help:"Token for the daemon; better in the environment."`
}

const defaultServer = "http://127.0.0.1:7333"

// client speaks the HTTP API, over TCP, over the daemon's socket, or to a handler in
// this process.
type client struct {
	base  string
	where string // for messages
	token string
	local bool         // in this process: what is left undone stays undone
	store driver.Store // if local
	http  *http.Client
	close func() error
}

// connect returns a client, which must be closed.
func (r *remote) connect(ctx context.Context) (*client, error) {
	if r.Data != "" {
		return r.connectData(ctx)
	}
	base := r.Server
	if base == "" {
		base = defaultServer
	}
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("--server %q is not an address: write it as %s", base, defaultServer)
	}
	if r.Token != "" && strings.ContainsFunc(r.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, usagef("the token holds characters that no token has")
	}
	t := transport()
	query := u.Query()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if err := address.TakeTLS(query).Apply(t.TLSClientConfig); err != nil {
		return nil, usagef("--server: %w", err)
	}
	if len(query) > 0 || u.Fragment != "" {
		return nil, usagef("--server takes tls_ca, tls_cert, tls_key and tls_server_name after a question mark, and nothing else")
	}
	u.RawQuery = ""
	return &client{
		base: strings.TrimRight(u.String(), "/"), where: u.Scheme + "://" + u.Host, token: r.Token,
		http: &http.Client{Transport: t}, close: func() error { t.CloseIdleConnections(); return nil },
	}, nil
}

// ProvideClient connects a command whose Run asks for a client, which is closed after it.
func (r *remote) ProvideClient(ctx context.Context, t *terminal) (*client, error) {
	c, err := r.connect(ctx)
	if err == nil {
		t.close = c.close
	}
	return c, err
}

func transport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
	}
}

// connectData talks to the store of a folder: through the daemon that has it, or
// else by opening it.
func (r *remote) connectData(ctx context.Context) (*client, error) {
	address := storeAddress(r.Data)
	dir, embedded := strings.CutPrefix(string(address), "sqlite:")
	if !embedded {
		return openLocal(ctx, address)
	}
	socket := filepath.Join(dir, daemon.SocketName)
	dial := func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", socket) }
	if conn, err := dial(ctx); err == nil {
		if err := conn.Close(); err != nil {
			return nil, err
		}
		t := transport()
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
		return &client{
			base: "http://redrive", where: "the daemon on " + dir,
			http: &http.Client{Transport: t}, close: func() error { t.CloseIdleConnections(); return nil },
		}, nil
	}
	if err := existing(ctx, address); err != nil {
		return nil, err
	}
	return openLocal(ctx, address)
}

// do sends a request and decodes the answer into out, if it is not nil.
func (c *client) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	resp, err := c.send(ctx, method, path, query, body, http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("the answer of %s cannot be read: %w", c.where, err)
	}
	return nil
}

// send sends a request and returns the answer if it is a success; the caller closes
// its body. Any other answer is the error.
func (c *client) send(ctx context.Context, method, path string, query url.Values, body io.Reader, header http.Header) (*http.Response, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("User-Agent", "redrive-cli/"+version())
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	return nil, c.refused(resp)
}

// unreachable explains a request that got no answer.
func (c *client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return &problem.Problem{Title: "There is no daemon at " + c.where, Detail: err.Error(),
			Hint: "start one with: redrive serve; or name another with --server URL or --data DIR"}
	}
	return fmt.Errorf("%s did not answer: %w", c.where, err)
}

// maxProblem bounds what is read of an answer that is an error.
const maxProblem = 1 << 20

func (c *client) refused(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	p := &problem.Problem{}
	if err == nil && strings.HasPrefix(resp.Header.Get("Content-Type"), problem.ContentType) && json.Unmarshal(b, p) == nil && p.Title != "" {
		if p.Status == http.StatusUnauthorized && p.Hint == "" {
			p.Hint = "give a token in REDRIVE_TOKEN or with --token"
		}
		return p
	}
	return fmt.Errorf("%s answered %s: %s (is it a redrive daemon?)", c.where, resp.Status, shorten(clean(strings.TrimSpace(string(b))), 200))
}

// segment escapes one part of a path.
func segment(s string) string { return url.PathEscape(s) }
