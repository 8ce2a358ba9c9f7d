package httpguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/redrive/redrive/guard"
)

// MaxBody is the most bytes of a request's or a response's body.
const MaxBody = 1 << 20

// ErrTooLarge says that a body is larger than MaxBody. For a request it is permanent;
// of a response the effect is known: it came.
var ErrTooLarge = errors.New("the body is too large for a guard")

// Request is an HTTP request as a value, so that it can wait.
type Request struct {
	Method string      `json:"method"`
	URL    string      `json:"url"` // with a base URL given to Call: a path and query
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

// Response is an HTTP response as a value.
type Response struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

// Call returns a call over a client, for [guard.Provider]. With a base URL requests go
// there, whatever host they name; so several providers of one API can stand in for
// each other; a request without a path and query goes to the base as it is. Redirects are the client's affair. An answer of any status is no error;
// use [Classify] with it.
func Call(client *http.Client, base string) (guard.Call[Request, Response], error) {
	var root *url.URL
	if base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("base URL %q: use https://HOST/PATH", base)
		}
		root = u
	}
	return func(ctx context.Context, r Request) (Response, error) {
		u, err := target(root, r.URL)
		if err != nil {
			return Response{}, permanent(err)
		}
		req, err := http.NewRequestWithContext(ctx, r.Method, u, bytes.NewReader(r.Body))
		if err != nil {
			return Response{}, permanent(err)
		}
		req.GetBody = nil // nothing is sent twice behind the guard's back
		if r.Header != nil {
			req.Header = r.Header.Clone()
		}
		resp, err := client.Do(req)
		if err != nil {
			return Response{}, err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
		if err != nil {
			return Response{}, err
		}
		if len(body) > MaxBody {
			return Response{}, permanent(fmt.Errorf("%w: the answer %d of %s has more than %d bytes", ErrTooLarge, resp.StatusCode, req.URL.Host, MaxBody))
		}
		return Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
	}, nil
}

// target is where a request goes.
func target(root *url.URL, to string) (string, error) {
	if root == nil {
		return to, nil
	}
	u, err := url.Parse(to)
	if err != nil {
		return "", err
	}
	joined := *root
	if u.Path != "" {
		joined.Path = strings.TrimSuffix(root.Path, "/") + "/" + strings.TrimPrefix(u.Path, "/")
		joined.RawPath = ""
	}
	switch {
	case root.RawQuery == "":
		joined.RawQuery = u.RawQuery
	case u.RawQuery != "":
		joined.RawQuery = root.RawQuery + "&" + u.RawQuery
	}
	return joined.String(), nil
}
