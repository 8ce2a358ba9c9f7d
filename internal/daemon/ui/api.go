package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/redrive/redrive/internal/problem"
)

// answer collects what the API answers.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// at writes the path of something in the API, its parts escaped.
func at(parts ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, part := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(part))
	}
	return b.String()
}

// get asks the API for something, as the page's caller.
func get[T any](v *visit, path string, query url.Values) (out T, err error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	err = v.ask(http.MethodGet, path, nil, &out)
	return out, err
}

// send has the API change something, as the page's caller.
func send[T any](v *visit, method, path string, body any) (out T, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return out, err
	}
	err = v.ask(method, path, b, &out)
	return out, err
}

// ask is a request to the API. An error of the API is a [problem.Problem].
func (v *visit) ask(method, path string, body []byte, into any) error {
	a, err := v.answerOf(method, path, body)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(a.body.Bytes(), into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// answerOf returns what the API answers, as it is.
func (v *visit) answerOf(method, path string, body []byte) (*answer, error) {
	var reader io.Reader = http.NoBody
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(v.r.Context(), method, path, reader)
	if err != nil {
		return nil, err
	}
	r.RemoteAddr, r.Host, r.RequestURI = v.r.RemoteAddr, v.r.Host, path
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	v.headers.Lock()
	a := &answer{header: http.Header{"X-Request-Id": v.w.Header()["X-Request-Id"]}}
	v.headers.Unlock()
	v.u.o.API.ServeHTTP(a, r)
	if a.status >= 400 {
		p := new(problem.Problem)
		if json.Unmarshal(a.body.Bytes(), p) != nil || p.Status == 0 {
			return nil, fmt.Errorf("%s %s: status %d", method, path, a.status)
		}
		return nil, p
	}
	return a, nil
}

// named reports whether an error is the problem of a name.
func named(err error, name string) bool {
	var p *problem.Problem
	return errors.As(err, &p) && p.Name() == name
}
