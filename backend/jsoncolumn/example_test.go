package jsoncolumn_test

import (
	"fmt"

	"github.com/redrive/redrive/backend/jsoncolumn"
)

// A JSON column of one's own table, as a query argument and as a destination of Scan.
func ExampleJSON() {
	type address struct {
		City string `json:"city"`
	}
	column := jsoncolumn.NewJSON(address{City: "Berlin"}) // db.Exec("INSERT ... VALUES (?)", column)
	stored, err := column.Value()
	fmt.Println(stored, err)

	var got jsoncolumn.JSON[address] // rows.Scan(&got)
	if err := got.Scan(stored); err != nil {
		fmt.Println(err)
	}
	fmt.Println(got.V.City, got.Valid)
	fmt.Println(got.Scan(nil), got.Valid) // NULL
	// Output:
	// {"city":"Berlin"} <nil>
	// Berlin true
	// <nil> false
}
