package main

import (
	"context"
	"fmt"
	"os"
)

func Example() {
	dir, err := os.MkdirTemp("", "redrive-example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), dir, os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// sent to +4930123456
	// dead (permanent): this is not a telephone number: "0049 30 123456"
	// redriven, sent to +4930123456
}
