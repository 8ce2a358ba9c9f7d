package config

import (
	"fmt"
	"net/url"
)

// WebSocket configures the WebSocket gateway.
type WebSocket struct {
	// Origins are those of web pages that may connect beside the daemon's own, such as
	// "https://app.example.com"; "null" stands for pages without one.
	Origins []string `yaml:"origins" json:"origins,omitempty"`
	// MaxFrame bounds a frame of a client. Defaults to 1MiB.
	MaxFrame Size `yaml:"max_frame" json:"max_frame,omitempty"`
	// Connections that may be open at once. Defaults to 16384.
	Connections int `yaml:"connections" json:"connections,omitempty"`
	// Session is how long a session is kept without a connection. Defaults to 24h.
	Session Duration `yaml:"session" json:"session,omitempty"`
	// Results is how long a result waits for its client. Defaults to 24h.
	Results Duration `yaml:"results" json:"results,omitempty"`
}

const maxFrameBound = 32 << 20

func (w *WebSocket) check(k *checker) {
	for i, o := range w.Origins {
		u, err := url.Parse(o)
		if o != "null" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" || u.RawQuery != "") {
			k.bad(fmt.Sprintf("websocket.origins[%d]", i), fmt.Sprintf("%q is not an origin", o), "write it as https://app.example.com, without a path")
		}
	}
	if w.MaxFrame < 0 || w.MaxFrame > maxFrameBound || w.MaxFrame > 0 && w.MaxFrame < 1024 {
		k.bad("websocket.max_frame", fmt.Sprintf("a frame cannot be bounded to %s", w.MaxFrame), "write a size from 1KiB to 32MiB")
	}
	if w.Connections < 0 {
		k.bad("websocket.connections", "it is negative", "")
	}
	if w.Session < 0 || w.Results < 0 {
		k.bad("websocket", "a negative time", "")
	}
}
