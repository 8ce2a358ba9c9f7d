package mysql

import (
	"strings"
)

// bookNames are the columns of book and delta.
var bookNames = strings.Fields(`fresh retry redrive bytes published parked imported moved_in repeated done dropped archived moved_out
	dead_exhausted dead_permanent dead_crashed dead_expired dead_undecodable dead_oversize dead_unroutable dead_rejected dead_loop
	dead_uncertain dead_disabled dead_manual`)

// bookList is a list of all books for SQL, each made by a format of its name.
func bookList(format string) string {
	list := make([]string, len(bookNames))
	for i, name := range bookNames {
		list[i] = strings.ReplaceAll(format, "#", name)
	}
	return strings.Join(list, ", ")
}

// bookDelta is the statement that writes one row of differences.
func bookDelta() string {
	return "INSERT INTO redrive_delta (queue, " + bookList("#") + ") VALUES (?, " + bookList("NULLIF(?, 0)") + ")"
}
