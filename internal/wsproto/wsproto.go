// Package wsproto has what both ends of a WebSocket session must spell alike: names of
// frames, close codes, bounds. docs/websocket.md describes the protocol.
package wsproto

// Subprotocol is the name of the protocol in the WebSocket handshake.
const Subprotocol = "redrive.v1.json"

// BearerPrefix begins a subprotocol that carries a token in base64url, for browsers.
const BearerPrefix = "redrive.bearer." //nolint:gosec // no credential, what stands before one

// Types of frames.
const (
	TypeHello     = "hello"
	TypeWelcome   = "welcome"
	TypePublish   = "publish"
	TypeAck       = "ack"
	TypeSeen      = "seen"
	TypeCredit    = "credit"
	TypeSlowDown  = "slow_down"
	TypeResult    = "result"
	TypeResultAck = "result_ack"
	TypeGap       = "gap"
	TypePing      = "ping"
	TypePong      = "pong"
	TypeBye       = "bye"
)

// Bounds of Hello.Window.
const (
	DefaultWindow = 64
	MaxWindow     = 256
)

// Code is the code of a WebSocket close.
type Code int

// The codes with which the gateway closes, beside those that the WebSocket protocol
// gives by itself.
const (
	CodeBye        Code = 1000 // the session is over
	CodeBinary     Code = 1003
	CodeUTF8       Code = 1007
	CodeTooBig     Code = 1009
	CodeInternal   Code = 1011
	CodeRestart    Code = 1012
	CodeOverloaded Code = 1013
	CodeFrame      Code = 4400 // a frame that cannot be, or comes at the wrong time
	CodeToken      Code = 4401
	CodeForbidden  Code = 4403 // the session is another token's
	CodeIdle       Code = 4408
	CodeSuperseded Code = 4409
	CodeTooMany    Code = 4429 // beyond the credit, or too many errors unconfirmed
)

// Refuses reports that the client may see nothing more of the session.
func (c Code) Refuses() bool { return c == CodeToken || c == CodeForbidden }
