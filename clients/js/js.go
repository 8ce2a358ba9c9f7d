// Package js holds the JavaScript client, for Go programs that serve it to browsers.
package js

import "embed"

// FS holds redrive.js and its types, redrive.d.ts.
//
//go:embed redrive.js redrive.d.ts
var FS embed.FS
