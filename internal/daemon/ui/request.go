package ui

import (
	"encoding/json"
	"strings"
)

// curl returns a request to the API as a command, without the token.
func (v *visit) curl(method, path string, body any) string {
	b, err := json.Marshal(body)
	if err != nil {
		return ""
	}
	base := "http://" + v.r.Host
	if v.u.encrypted(v.r) {
		base = "https://" + v.r.Host
	}
	if public := v.u.o.Public(); public != nil {
		base = strings.TrimSuffix(public.String(), "/")
	}
	line := command("curl", "-X", method, base+path)
	if !v.u.o.Door.Open() {
		line += ` -H "Authorization: Bearer $REDRIVE_TOKEN"`
	}
	return line + " " + command("-H", "Content-Type: application/json", "-d", string(b))
}
