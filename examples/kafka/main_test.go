package main

import (
	"context"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

func Example() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	dir, err := os.MkdirTemp("", "redrive-example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), cluster.ListenAddrs()[0], "orders", dir, os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// billed order 1 of Hans
	// dead (permanent) from orders/0/1: order 2 has no customer
	// redriven, billed order 2 of Grete
}
