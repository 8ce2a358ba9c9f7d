package postgres

import (
	"fmt"
	"strings"

	"github.com/redrive/redrive/internal/sqlstore"
)

// bookNames are the columns of queue and delta.
var bookNames = strings.Fields(`fresh retry redrive bytes published parked imported moved_in repeated done dropped archived moved_out
	exhausted permanent crashed expired undecodable oversize unroutable rejected loop uncertain disabled manual`)

// bookLists are lists of all books for SQL, each made by a format of its name.
func bookList(format string) string {
	list := make([]string, len(bookNames))
	for i, name := range bookNames {
		list[i] = strings.ReplaceAll(format, "#", name)
	}
	return strings.Join(list, ", ")
}

// bookDelta is the statement that writes one row of differences.
func bookDelta() string {
	places := make([]string, sqlstore.BookCount)
	for i := range places {
		places[i] = fmt.Sprintf("nullif($%d::bigint, 0)", i+2)
	}
	return "INSERT INTO redrive.delta (queue, " + bookList("#") + ") VALUES ($1, " + strings.Join(places, ", ") + ")"
}
