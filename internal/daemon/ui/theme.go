package ui

import (
	"net/http"
	"slices"
	"strconv"
)

// The themes that a reader may choose; without one the system's is used.
const (
	themeLight = "light"
	themeDark  = "dark"
)

const (
	themeCookie = "rdui-theme"
	themeFor    = 365 * 24 * 3600 // seconds
)

// theme returns what the reader chose.
func theme(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && (c.Value == themeLight || c.Value == themeDark) {
		return c.Value
	}
	return ""
}

// setTheme keeps the choice in a cookie, and leads back. It changes nothing here, so it is there
// when the pages are read-only, too.
func setTheme(v *visit) error {
	if v.who == nil {
		return noSession()
	}
	if !same(v.value("form"), v.form) {
		return wrongForm()
	}
	to := v.value("theme")
	if !slices.Contains([]string{"", themeLight, themeDark}, to) {
		return bad("theme "+strconv.Quote(to), "use light, dark, or nothing for that of the system")
	}
	age := themeFor
	if to == "" {
		age = -1
	}
	http.SetCookie(v.w, v.u.cookie(v.r, themeCookie, to, age))
	return v.redirect(nextPage("/ui" + v.value("next")))
}
