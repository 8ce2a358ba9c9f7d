package main

// What a root without an operating system lacks: time zones, and the certificates of
// authorities, which count only where the system has none.
import (
	_ "time/tzdata"

	_ "golang.org/x/crypto/x509roots/fallback"
)
